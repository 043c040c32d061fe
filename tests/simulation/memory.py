"""The law that a member's memory is bounded, in records and bytes: counted by the payloads that it really holds."""

import gc
from collections import defaultdict

from offsetzero.consumers.record import OVERHEAD
from simulation.log import Stored
from simulation.plan import Plan
from simulation.world import RETRIES

RECORD_BYTES = OVERHEAD + 700
SPARE_RECORDS = 8  # paused partitions still give one a poll while they are assigned anew


class Held:
    """What the runtime of one member holds of a kind of topics."""

    def __init__(self) -> None:
        self.records = 0
        self.bytes = 0


class Payload(bytes):
    """A record's value that counts as held until the last reference to it is gone."""

    held: Held

    def __del__(self) -> None:
        self.held.records -= 1
        self.held.bytes -= len(self) + OVERHEAD


class Memory:
    """What all members hold.

    Args:
        plan: how much they may hold.
    """

    def __init__(self, plan: Plan) -> None:
        self._held: dict[tuple[str, bool], Held] = defaultdict(Held)
        given_up = 4 if plan.timeout else 1  # a handler that was given up keeps what it was given
        self._records = plan.max_in_flight * given_up + SPARE_RECORDS
        self._fetched = plan.max_in_flight * RECORD_BYTES  # of which it is looked at what is kept
        self._bytes = plan.max_bytes + plan.max_in_flight * given_up * RECORD_BYTES  # looked at between two fetches

    def hold(self, member: str, record: Stored) -> tuple[bytes | None, str]:
        """The value to hand to a member, and what is wrong then, if anything is."""
        if record.value is None:
            return None, ""
        waits = record.topic in RETRIES
        held = self._held[member, waits]
        payload = Payload(record.value)
        payload.held = held
        held.records += 1
        held.bytes += len(payload) + OVERHEAD
        if self._is_too_much(held, waits):
            gc.collect()  # failures with their tracebacks refer to each other
        wrong = f"{member} holds {held.records} records, {held.bytes} bytes in memory"
        return payload, wrong if self._is_too_much(held, waits) else ""

    def _is_too_much(self, held: Held, waits: bool) -> bool:
        limit = self._bytes + self._fetched * waits
        return held.bytes > limit or held.records > (limit // OVERHEAD if waits else self._records)
