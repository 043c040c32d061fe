"""Whose turn it is: lanes, copies that wait for their turn, and what is parked behind them. Pure.

The dispatcher calls it with its lock held. Every undone record of this member is in one place: in a lane (queued,
running, or held until it runs again), among the copies, or on its way to the first tier.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from offsetzero.clock import Clock
from offsetzero.consumers.order import PARKED, UNMOVED, Copy, Lane, Meeting
from offsetzero.consumers.record import Record
from offsetzero.consumers.working.appends import is_too_large
from offsetzero.consumers.working.copies import Copies
from offsetzero.consumers.working.lanes import KeyLanes
from offsetzero.consumers.working.later import Later, Place
from offsetzero.consumers.working.parking import Parked
from offsetzero.consumers.working.partition_lanes import PartitionLanes
from offsetzero.errors import PublishError

AGAIN_SECONDS = 1.0  # between tries of one record while the group's database is away


@dataclass(slots=True)
class Amount:
    """Records, and their bytes."""

    records: int = 0
    bytes: int = 0


class Turns:
    """One for a dispatcher.

    Args:
        clock: its monotonic time is what due times are measured with.
        lanes: which records may run at once.
        later: has those that wait for their time.
        batch: whether handlers take many records in one call.
        ordered: whether the order of a key survives retries.
    """

    def __init__(
        self, clock: Clock, lanes: KeyLanes | PartitionLanes, later: Later, *, batch: bool, ordered: bool
    ) -> None:
        self.lanes = lanes
        self.copies = Copies()
        self.parked = Parked()
        self.answered: list[tuple[Record, PublishError | None]] = []
        """What parking is to be told."""
        self.suspects: set[Record] = set()
        """Of what is queued or runs, for batch handlers: until they have run, a call has one record."""
        self.in_flight = 0
        """Records that are queued, running or being parked."""
        self.bytes = 0
        """Of them."""
        self.bulk = Amount()
        """Of those from bulk topics."""
        self.winding_down = False
        """Whether no more copies may run."""
        self._clock = clock
        self._later = later
        self._batch = batch
        self._ordered = ordered and isinstance(lanes, KeyLanes)

    def lane(self, key: bytes | None, origin: int) -> Lane:
        """Whose turn a record awaits: that of its key, unless it has no order."""
        return key if self._ordered and key is not None else origin

    def deliver(self, records: Iterable[Record]) -> None:
        """Queue delivered records in the order of their offsets; those whose key waits are parked."""
        for record in records:
            if record.owned.order.live:
                self._meet(record)
            else:
                self.enter(record)

    def enter(self, record: Record) -> None:
        """Queue a record."""
        self._count(record)
        self.lanes.add(record)

    def leave(self, record: Record) -> None:
        """It is no longer in flight."""
        self.in_flight -= 1
        if self.suspects:
            self.suspects.discard(record)
        self.bytes -= record.size
        if record.owned.is_bulk:
            self.bulk.records -= 1
            self.bulk.bytes -= record.size

    def postpone(self, records: Sequence[Record]) -> None:
        """Have taken ones run again later, before everything else of their keys: the first of a key holds its lane."""
        due = self._clock.monotonic() + AGAIN_SECONDS
        for record in self.lanes.hold(records):
            self._later.add(record, max(due, record.again_at), Place.LANE)

    def finish(self, record: Record, *, done: bool) -> None:
        """The work on a taken record has ended: what comes behind it of its key runs, or is parked."""
        is_retried = record.copy is not None or record.moved is not None or record.held
        if is_retried and done:
            self._prepare_next(record)
        self.leave(record)
        self.lanes.finish(record)  # before its headers are gone, which name its tenant
        if done:
            record.free()
        record.done = done
        if is_retried and isinstance(self.lanes, KeyLanes):
            if (copy := record.copy) is not None and done:
                copy.done, copy.record = True, None
                self.copies.end(copy, self._clock.monotonic())
            self.let_out()

    def _meet(self, record: Record) -> None:
        """A source record is delivered while others of its partition wait in retry topics."""
        lane = self.lane(record.key, record.offset)
        match record.owned.order.meets(lane, record.offset):
            case Meeting.RUN:
                self.enter(record)
            case Meeting.PARK:
                self._count(record)
                self._park(record)
            case Meeting.UNREAD:
                record.free()
                record.done = True

    def _prepare_next(self, record: Record) -> None:
        """Before the next of its lane would run: whether that waits for a copy of this one."""
        if record.held:
            self._keep_hold(record)
        if record.moved is not None and isinstance(self.lanes, KeyLanes) and record.owned.active:
            self._move(record)

    def _move(self, record: Record) -> None:
        """A copy was appended: those that stand behind it in its lane wait for that one."""
        assert record.moved is not None  # noqa: S101
        order, origin = record.order, record.offset if record.copy is None else record.copy.origin
        self.copies.expect(order, self.lane(record.key, origin), origin, record.moved)
        if self._ordered and isinstance(self.lanes, KeyLanes):
            for behind in self.lanes.part(record.key, lambda other: other.order is order):
                self.send_back(behind)

    def _keep_hold(self, record: Record) -> None:
        """A record that is held has ended, for good, or as the dead letter that it was before."""
        origin = record.offset if record.copy is None else record.copy.origin
        if record.lifted and record.moved is None:
            record.order.held.discard(origin)
            return
        record.order.held.add(origin)
        if record.moved is None:
            redrive_no, hop, _ = UNMOVED if record.copy is None else record.copy.version
            record.moved = redrive_no, hop + 1, 0

    def send_back(self, record: Record) -> None:
        """A record that was about to run has to wait for one of its key."""
        if record.copy is None:
            self._park(record)
        else:
            self.leave(record)
            self.copies.take_back(record.copy, self._clock.monotonic())

    def _park(self, record: Record) -> None:
        record.parking = True
        self.copies.expect(record.owned.order, self.lane(record.key, record.offset), record.offset, PARKED)
        self.parked.add(record)

    def park_later(self, record: Record) -> None:
        """The broker has not taken it."""
        self._later.add(record, self._clock.monotonic() + AGAIN_SECONDS, Place.PARKING)

    def _keep(self, record: Record) -> None:
        """It is too large to be parked: undone at its offset, it awaits its turn as a copy would."""
        now, order = self._clock.monotonic(), record.owned.order
        record.parking = False
        self.leave(record)
        lane = self.lane(record.key, record.offset)
        record.copy = Copy(order, lane, record.offset, PARKED, record.owned, record.offset, now, record)
        self.copies.take_in([record.copy], now)
        self.let_out()

    def settle_parked(self) -> None:
        """Note what the broker has answered."""
        for record, error in self.parked.answered():
            if record.owned.active:
                self.answered.append((record, error))
            if error is None or not record.owned.active:
                self.leave(record)
                record.free()
                record.done = error is None
            elif is_too_large(error):
                self._keep(record)
            else:
                self.park_later(record)

    def let_out(self) -> bool:
        """Let copies run whose turn it is."""
        if self.winding_down:
            return False
        records = self.copies.let_out()
        for record in records:
            self.enter(record)
        return bool(records)

    def _count(self, record: Record) -> None:
        self.in_flight += 1
        if self._batch and record.owned.suspects_end and record.is_suspect:
            self.suspects.add(record)
        self.bytes += record.size
        if record.owned.is_bulk:
            self.bulk.records += 1
            self.bulk.bytes += record.size
