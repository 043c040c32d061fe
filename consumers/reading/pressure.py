"""Back-pressure: fetch less first; pause as the last resort, for the client throws its prefetch away then."""

from collections.abc import Collection, Iterable
from dataclasses import replace

from offsetzero import metrics
from offsetzero.clock import Clock
from offsetzero.consumers.reading.fetching import Fetching
from offsetzero.consumers.record import OwnedPartition, PauseReason
from offsetzero.consumers.working.dispatch import Dispatcher, Room
from offsetzero.settings import GroupSettings

BATCH = 500  # records that are fetched at once
WAIT_SECONDS = 0.05
FULL_SECONDS = 1.0  # without room for so long, partitions are paused: not polling would look like a dead member
QUICK_SECONDS, SLOW_SECONDS = 2.0, 10.0
"""In which a lane for backfill works off half of what is in flight, for it to have twice as much, or half of it."""
MAX_WAITING = 1_000_000  # records of retry topics that are known; then nothing more is parked
MAX_SPAN = 20_000  # records from the lowest undone one of a partition to the last: what a crash reads again


class Pressure:
    """Decides how much is fetched; belongs to the polling thread.

    Args:
        fetching: paused and resumed.
        group: for metrics.
        retries: topics whose records wait in memory until they are due.
        dispatcher: says how much is in flight.
        limits: how much may be.
        clock: for how long there was no room.
    """

    def __init__(
        self,
        fetching: Fetching,
        group: str,
        retries: frozenset[str],
        dispatcher: Dispatcher,
        limits: GroupSettings,
        clock: Clock,
    ) -> None:
        self._fetching = fetching
        self._group = group
        self._retries = retries
        self._dispatcher = dispatcher
        self._limits = limits
        self._clock = clock
        self._full_since: float | None = None
        self._of_bulk = BATCH  # records that may be in flight of a lane for backfill, beside another one
        self._bulk_since: float | None = None  # when it was paused

    def room(self, partitions: Collection[OwnedPartition]) -> int:
        """How many records to fetch now, after waiting a moment for room; 0 for none.

        Without room for a second everything is paused, and the answer is 1: polling goes on, for the membership.

        Args:
            partitions: those that are read, or would be without a reason of back-pressure.
        """
        limits, dispatcher = self._limits, self._dispatcher
        least = max(1, min(BATCH, limits.max_in_flight // 10))
        room = self._wait(partitions, least)
        self._bound_waiting(partitions)
        self._bound_spans(partitions)
        if room > 0:
            self._full_since = None
            if dispatcher.has_drained(limits.max_in_flight // 2, limits.max_in_flight_bytes // 2):
                self.resume(partitions, PauseReason.BACK_PRESSURE)
            return room
        now = self._clock.monotonic()
        if self._full_since is None:
            self._full_since = now
        if now - self._full_since < FULL_SECONDS:
            return 0
        self.pause(partitions, PauseReason.BACK_PRESSURE)
        return 1

    def _wait(self, partitions: Collection[OwnedPartition], least: int) -> int:
        """Wait a moment for room. A lane for backfill may have half of it: the rest stays free for live traffic.

        One that fills what it may have and is not worked off at once is paused: the client has fetched more of it, and
        hands that out before what comes now in the other lane. So what it may have is little at first, and follows the
        pace of its handlers.
        """
        limits, dispatcher = self._limits, self._dispatcher
        room = Room(limits.max_in_flight, limits.max_in_flight_bytes)
        bulk = [one for one in partitions if one.is_bulk]
        if not bulk or all(one.is_bulk or one.topic in self._retries for one in partitions):
            self.resume(bulk, PauseReason.LANE)  # there is no live traffic any more that room is left for
            return dispatcher.wait_for_room(room, least, WAIT_SECONDS)
        half = Room(max(1, room.records // 2), max(1, room.bytes // 2))
        if dispatcher.has_drained(min(self._of_bulk, half.records) // 2, half.bytes // 2, bulk=True):
            self.resume(bulk, PauseReason.LANE)
            self._learn(half.records)
        part = replace(half, records=min(self._of_bulk, half.records))
        if all(PauseReason.LANE in one.pauses for one in bulk):
            return dispatcher.wait_for_room(room, least, WAIT_SECONDS)
        few = max(1, min(least, part.records // 2))
        found = dispatcher.wait_for_room(replace(room, of_bulk=part), few, WAIT_SECONDS)
        if found >= few or dispatcher.has_drained(max(0, part.records - few), part.bytes - 1, bulk=True):
            return found
        self.pause(bulk, PauseReason.LANE)
        self._bulk_since = self._clock.monotonic()
        return dispatcher.space(room)

    def _learn(self, most: int) -> None:
        """A lane for backfill is read again: how long was it paused?"""
        if self._bulk_since is None:
            return
        took, self._bulk_since = self._clock.monotonic() - self._bulk_since, None
        if took < QUICK_SECONDS:
            self._of_bulk = min(2 * self._of_bulk, most)
        elif took > SLOW_SECONDS:
            self._of_bulk = max(self._of_bulk // 2, BATCH)

    def pause(self, partitions: Collection[OwnedPartition], reason: PauseReason) -> None:
        """Fetch nothing more of these until `resume` with the same reason."""
        fetched = [owned for owned in partitions if not owned.pauses]
        for owned in partitions:
            owned.pauses.add(reason)
        if fetched:
            self._fetching.pause(fetched)
            metrics.PAUSES.labels(self._group, reason).inc(len(fetched))

    def resume(self, partitions: Iterable[OwnedPartition], reason: PauseReason) -> None:
        """Take a reason away; a partition without any is fetched again."""
        rested = [owned for owned in partitions if reason in owned.pauses]
        for owned in rested:
            owned.pauses.discard(reason)
        if rested:
            self._fetching.resume([(owned, self._fetching.end(owned)) for owned in rested if not owned.pauses])

    def _bound_waiting(self, partitions: Iterable[OwnedPartition]) -> None:
        # The sources, from which records are parked: what the retry topics have must be known for the order of keys.
        waiting = self._dispatcher.waiting
        if waiting > MAX_WAITING:
            self.pause([one for one in partitions if one.topic not in self._retries], PauseReason.WAITING)
        elif waiting <= MAX_WAITING // 2:
            self.resume(partitions, PauseReason.WAITING)

    def _bound_spans(self, partitions: Iterable[OwnedPartition]) -> None:
        for owned in partitions:
            if owned.topic in self._retries:
                owned.forget_done(MAX_SPAN)  # one that waits for its due time is no reason to read no further
                continue
            if owned.undone > MAX_SPAN:
                self.pause([owned], PauseReason.SPAN)
            elif owned.pauses and owned.undone <= MAX_SPAN // 2:
                self.resume([owned], PauseReason.SPAN)
