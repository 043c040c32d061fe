"""Between the polling thread and the workers: one lock around what may run, what runs, and what waits for its time."""

import threading
from collections.abc import Callable, Collection, Generator, Iterable
from contextlib import contextmanager
from dataclasses import dataclass

from offsetzero.clock import Clock
from offsetzero.consumers.order import Copy, Lane, Order, Version
from offsetzero.consumers.record import OwnedPartition, Record
from offsetzero.consumers.working.lanes import KeyLanes
from offsetzero.consumers.working.later import Later, Place
from offsetzero.consumers.working.parking import Parking
from offsetzero.consumers.working.partition_lanes import PartitionLanes
from offsetzero.consumers.working.run import Doing, Ending, Run
from offsetzero.consumers.working.runs import Runs
from offsetzero.consumers.working.turns import Turns
from offsetzero.retry.failures import Failure
from offsetzero.store.holds import Hold

HELD_UP_SECONDS = 0.02  # after which others get what a worker has taken and not begun
SLICE_SECONDS = 0.01


@dataclass(frozen=True, slots=True)
class Room:
    """How many records, and bytes of them, may be in flight; of those from bulk topics, too, where that is bounded."""

    records: int
    bytes: int
    of_bulk: "Room | None" = None


class Dispatcher:
    """Hands runnable records to workers, one of a key at a time. Any thread may call any method.

    Args:
        clock: its monotonic time is what due times are measured with.
        lanes: which records may run at once.
        batch: records that a run may have, several of a key among them, for handlers that take many in one call;
            0 for handlers that take one.
        whole: whether such a run begins with all of its records, rather than with one after the other.
        ordered: whether the order of a key survives retries.
    """

    def __init__(
        self,
        clock: Clock,
        lanes: KeyLanes | PartitionLanes | None = None,
        batch: int = 0,
        *,
        whole: bool = True,
        ordered: bool = True,
    ) -> None:
        lanes = lanes or KeyLanes()
        self._clock = clock
        self._lanes = lanes
        self._later = Later()
        self._turns = Turns(clock, lanes, self._later, batch=batch > 0, ordered=ordered)
        self._runs = Runs(batch, whole=whole and batch > 0)
        self._batch = batch
        self._wake: Callable[[], None] = lambda: None
        self._lock = threading.Lock()
        self._runnable = threading.Condition(self._lock)
        self._room = threading.Condition(self._lock)
        self._closed = False
        self._elsewhere = 0
        self._idle = 0  # workers that wait for a run

    def on_runnable(self, wake: Callable[[], None]) -> None:
        """Have `wake` called, outside the lock, when a record may have become runnable; it must not block."""
        self._wake = wake

    def add(self, records: Iterable[Record]) -> None:
        """Queue delivered records in the order of their offsets; those whose key waits are parked."""
        with self._lock:
            self._turns.deliver(records)
            self._call_workers()
        self._wake()

    def take_in(self, copies: Iterable[Copy]) -> None:
        """Queue copies that were read from retry topics, in the order of their offsets."""
        with self._lock:
            self._turns.copies.take_in(copies, self._clock.monotonic())
            self._turns.let_out()
            self._call_workers()
        self._wake()

    def refill(self, read: Iterable[tuple[Copy, Record]], limit: int) -> None:
        """Payloads were read again: of copies that may run, and of others as far as `limit` bytes are not reached."""
        with self._lock:
            self._turns.copies.refill(read, limit, self._clock.monotonic())
            self._turns.let_out()
            self._call_workers()
        self._wake()

    def wanted(self) -> dict[OwnedPartition, list[int]]:
        """The offsets, in order, of copies that may run and whose payload is not in memory."""
        if not self._turns.copies.wanted:
            return {}
        with self._lock:
            return self._turns.copies.wanted_of()

    def hold(self, order: Order, hold: Hold) -> None:
        """A key is held from before this member's time."""
        with self._lock:
            order.held.add(hold.origin)
            version = hold.redrive_no, hold.hop, 0
            self._turns.copies.expect(order, self.lane(hold.key, hold.origin), hold.origin, version)

    def expect(self, order: Order, key: bytes | None, origin: int, version: Version) -> None:
        """A copy waits, and others see to it: what comes of its key is parked behind it."""
        with self._lock:
            self._turns.copies.expect(order, self.lane(key, origin), origin, version)

    def park(self, parking: Parking) -> None:
        """Append what is to be parked; called by the polling thread alone."""
        if not self._turns.parked:
            return
        with self._lock:
            self._turns.settle_parked()
            answered, self._turns.answered = self._turns.answered, []
            records = self._turns.parked.take()
        for record, error in answered:
            parking.answered(record, error)
        for record in records:
            delivery = parking.send(record)
            with self._lock:
                if delivery is not None:
                    self._turns.parked.sent(record, delivery)
                else:
                    self._turns.parked.refused(record)
                    self._turns.park_later(record)

    def lane(self, key: bytes | None, origin: int) -> Lane:
        """Whose turn a record awaits: that of its key, unless it has no order."""
        return self._turns.lane(key, origin)

    def add_later(self, record: Record, due: float) -> None:
        """Queue a record that may not run before `due` (monotonic seconds)."""
        with self._lock:
            self._later.add(record, due, Place.OUTSIDE)

    def tick(self) -> float | None:
        """Let records run whose time has come, and those that wait behind a worker that is held up.

        Returns:
            Seconds until the next one is due, None when nothing waits.
        """
        with self._lock:
            now = self._clock.monotonic()
            moved = False
            for run in self._runs:
                if now - run.begun_at > HELD_UP_SECONDS and (run.waiting or run.ended):
                    moved = self._relieve(run) or moved
            for record, place in self._later.due(now):
                moved = True
                match place:
                    case Place.OUTSIDE:
                        self._turns.enter(record)
                    case Place.LANE:
                        self._lanes.again(record)
                    case Place.PARKING:
                        self._turns.parked.add(record)
            dues = [due for due in (self._turns.copies.tick(now), self._later.next) if due is not None]
            moved = self._turns.let_out() or moved
            if moved:
                self._call_workers()
        if moved:
            self._wake()
        return max(0.0, min(dues) - now) if dues else None

    def purge(self) -> None:
        """Free what is queued or waits of partitions that were revoked."""
        with self._lock:
            for record, place in self._later.purge():
                if place is Place.LANE:
                    self._turns.finish(record, done=False)
                elif place is Place.PARKING:
                    self._turns.leave(record)
            for record in [*self._lanes.purge(lambda record: not record.owned.active), *self._turns.parked.purge()]:
                self._turns.leave(record)
            for record in self._runs.purge():
                self._turns.finish(record, done=False)
            self._turns.copies.purge()
            self._room.notify_all()
            self._call_workers()
        self._wake()

    def take(self, seconds: float | None = None) -> Run | None:
        """Wait for records that may run now, `seconds` at most; None when there were none, and once closed."""
        with self._lock:
            waits = True
            while waits and not self._closed:
                if (run := self._next(self._runs.share)) is not None:
                    return run
                self._idle += 1
                waits = self._clock.wait(self._runnable, lambda: self._closed or self._has_next(), seconds)
                self._idle -= 1
            return None

    def take_nowait(self, limit: int = 1) -> Run | None:
        """Up to `limit` records that may run now, or None."""
        with self._lock:
            return None if self._closed else self._next(limit)

    def release(self, run: Run) -> None:
        """Take out of a run what has ended and what was not begun: its worker is going to wait for something."""
        with self._lock:
            if run not in self._runs:
                return
            self._runs.learn(run, self._clock.monotonic())
            if not self._relieve(run):
                return
            self._call_workers()
            self._room.notify_all()
        self._wake()

    def end(self, runs: Iterable[Run]) -> None:
        """Workers have come to the end of these runs; what is left waiting in them was not begun."""
        with self._lock:
            now = self._clock.monotonic()
            for run in runs:
                if run.abandoned:
                    continue
                run.running = ()
                self._runs.learn(run, now)
                self._relieve(run)
                self._runs.forget(run)
            self._call_workers()
            self._room.notify_all()
            more = self._has_next()
        if more:
            self._wake()

    def wait_for_room(self, room: Room, least: int, seconds: float) -> int:
        """Wait until there is room for more in flight, `seconds` at most.

        Args:
            room: how much there is in all.
            least: records that there should be room for, while others are ready to run: room comes one by one, and
                to fetch so would take the interpreter from the workers for each.
            seconds: after which any room is enough.

        Returns:
            How many records there is room for; 0 for none.
        """

        def has_room() -> bool:
            space = self._space(room)
            return space >= least or (space > 0 and not self._lanes.ready)

        with self._lock:
            if not has_room():
                self._clock.wait(self._room, has_room, seconds)
            return self._space(room)

    def space(self, room: Room) -> int:
        """How many records there is room for now."""
        with self._lock:
            return self._space(room)

    def close(self) -> None:
        """Hand out nothing more; workers that wait in `take` get None, others end with the record that runs."""
        with self._lock:
            self._closed = True
            for run in self._runs:
                self._relieve(run)
            self._runnable.notify_all()

    def wait_idle(self, seconds: float, partitions: Collection[OwnedPartition] | None = None) -> list[Record]:
        """Wait until no record (of the given partitions) runs, or is being parked, `seconds` at most.

        Returns:
            The records that still are.
        """

        def left() -> list[Record]:
            self._turns.settle_parked()
            busy = [*self._turns.parked.on_their_way(), *self._runs.running]
            return [record for record in busy if partitions is None or record.owned in partitions]

        with self._lock:
            deadline = self._clock.monotonic() + seconds
            # In short slices: a worker that goes on to the next record of its run tells nobody.
            while left() and (rest := deadline - self._clock.monotonic()) > 0:
                self._clock.wait(self._room, lambda: not left(), min(rest, SLICE_SECONDS))
            for run in self._runs:
                self._relieve(run)  # what has ended meanwhile counts
            return left()

    def held_up(self, seconds: float) -> list[tuple[Run, float]]:
        """Runs whose handler has been at work for longer than that, with its seconds."""
        with self._lock:
            now = self._clock.monotonic()
            return [(run, now - run.begun_at) for run in self._runs if run.running and now - run.begun_at > seconds]

    def abandon(self, run: Run, seconds: float, failure: Failure, *, whole: bool = False) -> bool:
        """Take what runs from a worker whose function has been at work for so long.

        A record is given back as failed, for another worker to settle. Of the records of a batch it is not known which
        one is at fault: they are given back to be worked on one by one.

        Args:
            whole: whether the seconds are of all the work on the record.

        Returns:
            False when the function has ended meanwhile: then it has won.
        """
        with self._lock:
            # With the lock held: the worker, who learns of it at once, must find its run abandoned when it ends it.
            if run not in self._runs or run.at_work is None or not run.at_work.take(seconds, whole=whole):
                return False
            run.abandoned = True
            self._relieve(run)
            self._runs.forget(run)
            if len(run.running) == 1:
                run.running[0].failed = failure
            for record in run.running:
                record.alone = True
            for record in self._lanes.hold(run.running):
                self._lanes.again(record)
            self._call_workers()
            self._room.notify_all()
        self._wake()
        return True

    def wind_down(self, partitions: Iterable[OwnedPartition]) -> None:
        """Begin only what lies before a record that was begun, so that nothing done is read again; drop the rest."""
        with self._lock:
            for run in self._runs:
                self._relieve(run)
            self._turns.winding_down = True
            self._runs.lone.clear()  # their lanes stay theirs: what is behind them is not begun either
            running: dict[OwnedPartition, set[int]] = {}
            for record in self._runs.running:
                running.setdefault(record.owned, set()).add(record.offset)
            ends = {owned: owned.begun(running.get(owned, ())) for owned in partitions}
            for record in self._lanes.purge(lambda record: record.offset > ends.get(record.owned, -1)):
                self._turns.leave(record)
            self._call_workers()
        self._wake()

    @property
    def has_begun(self) -> bool:
        """Whether anything runs, or is about to; what stands behind a record that waits for its next try does not."""
        with self._lock:
            return bool(self._runs) or self._lanes.ready > 0

    @contextmanager
    def elsewhere(self) -> Generator[None]:
        """Around what a worker does between two runs and may wait for: what is ready is not to blame meanwhile."""
        with self._lock:
            self._elsewhere += 1
        try:
            yield
        finally:
            with self._lock:
                self._elsewhere -= 1

    def doing(self, record: Record | Copy, workers: int) -> Doing:
        """What an undone record is doing.

        Args:
            record: delivered, and not done.
            workers: how many runs are worked on at once.
        """
        with self._lock:
            if isinstance(record, Copy):
                if (waits := self._turns.copies.doing(record, self._clock.monotonic())) is not None:
                    return waits
                assert record.record is not None  # noqa: S101 - it is out
                record = record.record
            if record.due is not None or record.parking:
                return Doing.WAITING if record.provider is None else Doing.PROVIDER
            running = self._runs.running
            if record in running:
                return Doing.RUNNING
            # Limits hold records back, too, while anything runs.
            if (
                self._later.held
                or not self._runs.are_shared
                or len(self._runs) + self._elsewhere >= workers
                or any(one.key == record.key for one in running)
                or self._lanes.pauses(record)
            ):
                return Doing.QUEUED
            return Doing.QUEUED if running and self._lanes.is_limited else Doing.NOTHING

    @property
    def closed(self) -> bool:
        """Whether nothing more is handed out."""
        return self._closed

    @property
    def in_flight(self) -> int:
        """Records that are queued or running; those that wait for their due time not counted."""
        return self._turns.in_flight

    @property
    def running(self) -> int:
        """Records whose handlers run."""
        return len(self._runs.running)

    @property
    def waiting(self) -> int:
        """Records that wait for their due time, or for others of their keys."""
        with self._lock:
            return self._later.count + self._turns.copies.count

    @property
    def waiting_bytes(self) -> int:
        """What they hold in memory."""
        with self._lock:
            return self._later.bytes + self._turns.copies.bytes

    @property
    def is_parking(self) -> bool:
        """Whether the polling thread has something to park, or to be told of it."""
        return bool(self._turns.parked)

    def has_drained(self, limit: int, limit_bytes: int, *, bulk: bool = False) -> bool:
        """Whether no more than `limit` records and `limit_bytes` bytes are in flight, of all or of bulk topics."""
        turns = self._turns
        if bulk:
            return turns.bulk.records <= limit and turns.bulk.bytes <= limit_bytes
        return turns.in_flight <= limit and turns.bytes <= limit_bytes

    def most(self, limit: str) -> int | None:
        """How many records that are alike may run at once by a limit; None when the group has none of this name."""
        with self._lock:
            return self._lanes.most(limit) if isinstance(self._lanes, KeyLanes) else None

    def resize(self, limit: str, most: int) -> None:
        """Let so many run at once from now on."""
        with self._lock:
            if not isinstance(self._lanes, KeyLanes) or self._lanes.most(limit) == most:
                return
            self._lanes.resize(limit, most)
            self._call_workers()
        self._wake()

    @property
    def limited(self) -> dict[str, int]:
        """Records that wait because as many that are like them run as may, by the name of the limit."""
        with self._lock:
            return self._lanes.waiting

    # --- with the lock held

    def _space(self, room: Room) -> int:
        turns = self._turns
        space = room.records - turns.in_flight if turns.bytes < room.bytes else 0
        if room.of_bulk is not None:
            of_bulk = room.of_bulk.records - turns.bulk.records if turns.bulk.bytes < room.of_bulk.bytes else 0
            space = min(space, of_bulk)
        return max(0, space)

    def _call_workers(self) -> None:
        """Wake as many idle workers as there is work for: more would only take the interpreter from each other."""
        if not self._idle or not self._has_next():
            return
        if self._runs.lone:
            self._runnable.notify(1)
        else:
            self._runnable.notify(min(self._idle, -(-self._lanes.ready // self._runs.share)))

    def _has_next(self) -> bool:
        if self._runs.lone:
            return not self._runs
        return self._lanes.ready > 0 and self._runs.are_shared

    def _next(self, limit: int) -> Run | None:
        if not self._runs.are_shared:
            return self._runs.begin_alone(self._clock.monotonic())
        if self._turns.suspects:
            limit = 1
        records: list[Record] = []
        while len(records) < limit and (record := self._lanes.take()) is not None:
            if not record.owned.active:
                self._turns.finish(record, done=False)
                continue
            if record.owned.resting:
                self._turns.postpone((record,))
                continue
            if record.lone and record.is_suspect:
                self._runs.lone.append(record)
                break
            if record.alone and records:
                self._lanes.first(record)
                break
            records.append(record)
            if record.alone:
                break
            if self._batch:
                records += self._lanes.take_behind(record, limit - len(records))
        if not records:
            return self._runs.begin_alone(self._clock.monotonic())
        return self._runs.begin(records, self._clock.monotonic())

    def _relieve(self, run: Run) -> bool:
        """Take out of a run what has ended and what was not begun; true when others may run for it."""
        moved = False
        again: list[Record] = []
        while run.ended:
            record, ending = run.ended.popleft()
            if ending is Ending.DONE:
                self._turns.finish(record, done=True)
            elif ending is Ending.AGAIN and record.owned.active:
                if not record.is_suspect:
                    self._turns.suspects.discard(record)
                again.append(record)
            elif ending is Ending.ALONE and record.owned.active:
                if not self._turns.winding_down:
                    self._runs.lone.append(record)
            elif ending is Ending.BEHIND and record.owned.active:
                self._lanes.finish(record)
                self._turns.send_back(record)
                self._turns.let_out()
            else:
                self._turns.finish(record, done=False)
            moved = True
        self._turns.postpone(again)
        while True:
            try:
                record = run.waiting.pop()
            except IndexError:
                return moved
            self._lanes.first(record)
            moved = True
