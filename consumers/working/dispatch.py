"""Between the polling thread and the workers: what may run now, what waits for its time, how much is in flight."""

import heapq
import itertools
import threading
from collections import deque
from collections.abc import Callable, Collection, Generator, Iterable, Sequence
from contextlib import contextmanager

from offsetzero.clock import Clock
from offsetzero.consumers.order import PARKED, UNMOVED, Copy, Lane, Meeting, Order, Version
from offsetzero.consumers.record import OwnedPartition, Record
from offsetzero.consumers.working.appends import is_too_large
from offsetzero.consumers.working.copies import Copies
from offsetzero.consumers.working.lanes import KeyLanes
from offsetzero.consumers.working.parking import Parked, Parking
from offsetzero.consumers.working.partition_lanes import PartitionLanes
from offsetzero.consumers.working.run import Doing, Ending, Run
from offsetzero.errors import PublishError
from offsetzero.retry.failures import Failure
from offsetzero.store.holds import Hold

RUN_SECONDS = 0.005  # of work that a worker takes at once, by the average of what came before
MAX_RUN = 250  # records
HELD_UP_SECONDS = 0.02  # after which others get what a worker has taken and not begun
SLICE_SECONDS = 0.01
AGAIN_SECONDS = 1.0  # between tries of one record while the group's database is away
_WEIGHT = 0.2  # of the last run in the average


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
        self._clock = clock
        self._lanes = lanes or KeyLanes()
        self._ordered = ordered and isinstance(self._lanes, KeyLanes)
        self._copies = Copies()
        self._parked = Parked()
        self._answered: list[tuple[Record, PublishError | None]] = []  # what parking is to be told
        self._winding_down = False
        self._batch = batch
        self._whole = whole and batch > 0
        self._wake: Callable[[], None] = lambda: None
        self._lock = threading.Lock()
        self._runnable = threading.Condition(self._lock)
        self._room = threading.Condition(self._lock)
        self._later: list[tuple[float, int, Record, bool]] = []  # due, tie-break, record, holds its lane
        self._ties = itertools.count()
        self._held = 0  # of those that wait, how many hold their lane: their try will be repeated
        self._closed = False
        self._elsewhere = 0
        self._idle = 0  # workers that wait for a run
        self._suspects: set[Record] = set()  # of what is queued or runs; until they have run, a batch has one record
        self._lone: deque[Record] = deque()  # each keeps its lane, and runs once nothing else does
        self._alone: Run | None = None  # of one of those
        self._in_flight = 0
        self._bytes = 0
        self._waiting = 0
        self._waiting_bytes = 0
        self._runs: dict[Run, None] = {}  # in the order in which they were taken
        self._seconds = RUN_SECONDS  # average of a record; the first run is of one

    def on_runnable(self, wake: Callable[[], None]) -> None:
        """Have `wake` called, outside the lock, when a record may have become runnable; it must not block."""
        self._wake = wake

    def add(self, records: Iterable[Record]) -> None:
        """Queue delivered records in the order of their offsets; those whose key waits are parked."""
        with self._lock:
            for record in records:
                if record.owned.order.live:
                    self._meet(record)
                else:
                    self._enter(record)
            self._call_workers()
        self._wake()

    def take_in(self, copies: Iterable[Copy]) -> None:
        """Queue copies that were read from retry topics, in the order of their offsets."""
        with self._lock:
            self._copies.take_in(copies, self._clock.monotonic())
            self._let_out()
            self._call_workers()
        self._wake()

    def refill(self, read: Iterable[tuple[Copy, Record]], limit: int) -> None:
        """Payloads were read again: of copies that may run, and of others as far as `limit` bytes are not reached."""
        with self._lock:
            self._copies.refill(read, limit, self._clock.monotonic())
            self._let_out()
            self._call_workers()
        self._wake()

    def wanted(self) -> dict[OwnedPartition, list[int]]:
        """The offsets, in order, of copies that may run and whose payload is not in memory."""
        if not self._copies.wanted:
            return {}
        with self._lock:
            return self._copies.wanted_of()

    def hold(self, order: Order, hold: Hold) -> None:
        """A key is held from before this member's time."""
        with self._lock:
            order.held.add(hold.origin)
            self._copies.expect(order, self.lane(hold.key, hold.origin), hold.origin, (hold.redrive_no, hold.hop, 0))

    def expect(self, order: Order, key: bytes | None, origin: int, version: Version) -> None:
        """A copy waits, and others see to it: what comes of its key is parked behind it."""
        with self._lock:
            self._copies.expect(order, self.lane(key, origin), origin, version)

    def park(self, parking: Parking) -> None:
        """Append what is to be parked; called by the polling thread alone."""
        if not self._parked:
            return
        with self._lock:
            self._settle_parked()
            answered, self._answered = self._answered, []
            records = self._parked.take()
        for record, error in answered:
            parking.answered(record, error)
        for record in records:
            delivery = parking.send(record)
            with self._lock:
                if delivery is not None:
                    self._parked.sent(record, delivery)
                else:
                    self._parked.refused(record)
                    self._park_later(record)

    def lane(self, key: bytes | None, origin: int) -> Lane:
        """Whose turn a record awaits: that of its key, unless it has no order."""
        return key if self._ordered and key is not None else origin

    def add_later(self, record: Record, due: float) -> None:
        """Queue a record that may not run before `due` (monotonic seconds)."""
        with self._lock:
            self._waiting += 1
            self._waiting_bytes += record.size
            self._wait(record, due, holds_lane=False)

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
            while self._later and self._later[0][0] <= now:
                _, _, record, holds_lane = heapq.heappop(self._later)
                record.due = None
                moved = True
                if record.parking:
                    self._parked.add(record)
                elif holds_lane:
                    self._held -= 1
                    self._lanes.again(record)
                else:
                    self._stop_waiting(record)
                    self._enter(record)
            due = self._copies.tick(now)
            moved = self._let_out() or moved
            if moved:
                self._call_workers()
            dues = [self._later[0][0]] if self._later else []
            wait = max(0.0, min(dues if due is None else [due, *dues]) - now) if dues or due is not None else None
        if moved:
            self._wake()
        return wait

    def purge(self) -> None:
        """Free what is queued or waits of partitions that were revoked."""
        with self._lock:
            kept = []
            for item in self._later:
                _, _, record, holds_lane = item
                if record.owned.active:
                    kept.append(item)
                elif record.parking:
                    self._leave(record)
                elif holds_lane:
                    self._held -= 1
                    self._finish(record, done=False)
                else:
                    self._stop_waiting(record)
            heapq.heapify(kept)
            self._later = kept
            for record in [*self._lanes.purge(lambda record: not record.owned.active), *self._parked.purge()]:
                self._leave(record)
            lone, self._lone = self._lone, deque(record for record in self._lone if record.owned.active)
            for record in lone:
                if not record.owned.active:
                    self._finish(record, done=False)
            self._copies.purge()
            self._room.notify_all()
            self._call_workers()
        self._wake()

    def take(self, seconds: float | None = None) -> Run | None:
        """Wait for records that may run now, `seconds` at most; None when there were none, and once closed."""
        with self._lock:
            waits = True
            while waits and not self._closed:
                if (run := self._next(self._share())) is not None:
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
            if run not in self._runs or not self._relieve(run):
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
                self._relieve(run)
                self._forget(run)
                self._seconds += _WEIGHT * ((now - run.taken_at) / run.count - self._seconds)
            self._call_workers()
            self._room.notify_all()
            more = self._has_next()
        if more:
            self._wake()

    def wait_for_room(self, limit: int, limit_bytes: int, least: int, seconds: float) -> int:
        """Wait until fewer than `limit` records and `limit_bytes` bytes are in flight, `seconds` at most.

        Args:
            limit: records.
            limit_bytes: of them.
            least: records that there should be room for, while others are ready to run: room comes one by one, and
                to fetch so would take the interpreter from the workers for each.
            seconds: after which any room is enough.

        Returns:
            How many records there is room for; 0 for none.
        """

        def has_room() -> bool:
            space = self._space(limit, limit_bytes)
            return space >= least or (space > 0 and not self._lanes.ready)

        with self._lock:
            if not has_room():
                self._clock.wait(self._room, has_room, seconds)
            return self._space(limit, limit_bytes)

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
            self._settle_parked()
            busy = [*self._parked.on_their_way(), *(record for run in self._runs for record in run.running)]
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

    def abandon(self, run: Run, seconds: float, failure: Failure) -> bool:
        """Take what runs from a worker whose function has been at work for so long.

        A record is given back as failed, for another worker to settle. Of the records of a batch it is not known which
        one is at fault: they are given back to be worked on one by one.

        Returns:
            False when the function has ended meanwhile: then it has won.
        """
        with self._lock:
            # With the lock held: the worker, who learns of it at once, must find its run abandoned when it ends it.
            if run not in self._runs or run.at_work is None or not run.at_work.take(seconds):
                return False
            run.abandoned = True
            self._relieve(run)
            self._forget(run)
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
            self._winding_down = True
            self._lone.clear()  # their lanes stay theirs: what is behind them is not begun either
            running: dict[OwnedPartition, set[int]] = {}
            for record in (record for run in self._runs for record in run.running):
                running.setdefault(record.owned, set()).add(record.offset)
            ends = {owned: owned.begun(running.get(owned, ())) for owned in partitions}
            for record in self._lanes.purge(lambda record: record.offset > ends.get(record.owned, -1)):
                self._leave(record)
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
                if (waits := self._copies.doing(record, self._clock.monotonic())) is not None:
                    return waits
                assert record.record is not None  # noqa: S101 - it is out
                record = record.record
            if record.due is not None or record.parking:
                return Doing.WAITING if record.provider is None else Doing.PROVIDER
            running = [one for run in self._runs for one in run.running]
            if record in running:
                return Doing.RUNNING
            # Limits of tenants hold records back, too, while anything runs.
            if (
                self._held
                or self._lone
                or self._alone is not None
                or len(self._runs) + self._elsewhere >= workers
                or any(one.key == record.key for one in running)
            ):
                return Doing.QUEUED
            return Doing.QUEUED if running and self._lanes.limits_tenants else Doing.NOTHING

    @property
    def closed(self) -> bool:
        """Whether nothing more is handed out."""
        return self._closed

    @property
    def in_flight(self) -> int:
        """Records that are queued or running; those that wait for their due time not counted."""
        return self._in_flight

    @property
    def running(self) -> int:
        """Records whose handlers run."""
        return sum(len(run.running) for run in list(self._runs))

    @property
    def waiting(self) -> int:
        """Records that wait for their due time, or for others of their keys."""
        with self._lock:
            return self._waiting + self._copies.count

    @property
    def waiting_bytes(self) -> int:
        """What they hold in memory."""
        with self._lock:
            return self._waiting_bytes + self._copies.bytes

    @property
    def is_parking(self) -> bool:
        """Whether the polling thread has something to park, or to be told of it."""
        return bool(self._parked)

    def has_drained(self, limit: int, limit_bytes: int) -> bool:
        """Whether no more than `limit` records and `limit_bytes` bytes are in flight."""
        return self._in_flight <= limit and self._bytes <= limit_bytes

    # --- with the lock held

    def _space(self, limit: int, limit_bytes: int) -> int:
        return max(0, limit - self._in_flight) if self._bytes < limit_bytes else 0

    def _share(self) -> int:
        """How many records a worker takes at once."""
        if self._batch:
            return self._batch
        return max(1, min(MAX_RUN, int(RUN_SECONDS / max(self._seconds, 1e-6))))

    def _call_workers(self) -> None:
        """Wake as many idle workers as there is work for: more would only take the interpreter from each other."""
        if not self._idle or not self._has_next():
            return
        if self._lone:
            self._runnable.notify(1)
        else:
            self._runnable.notify(min(self._idle, -(-self._lanes.ready // self._share())))

    def _has_next(self) -> bool:
        if self._lone:
            return not self._runs
        return self._lanes.ready > 0 and self._alone is None

    def _next(self, limit: int) -> Run | None:
        if self._lone:
            return None if self._runs else self._begin_alone()
        if self._alone is not None:
            return None
        if self._suspects:
            limit = 1
        records: list[Record] = []
        while len(records) < limit and (record := self._lanes.take()) is not None:
            if not record.owned.active:
                self._finish(record, done=False)
                continue
            if record.owned.resting:
                self._postpone((record,))
                continue
            if record.lone and record.is_suspect:
                self._lone.append(record)
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
            return self._begin_alone() if self._lone and not self._runs else None
        return self._begin(records)

    def _begin(self, records: Sequence[Record]) -> Run:
        run = Run(records, self._clock.monotonic(), whole=self._whole)
        self._runs[run] = None
        return run

    def _begin_alone(self) -> Run:
        """Should this process end now, it is known of which record."""
        self._alone = self._begin([self._lone.popleft()])
        return self._alone

    def _forget(self, run: Run) -> None:
        self._runs.pop(run, None)
        if run is self._alone:
            self._alone = None

    def _relieve(self, run: Run) -> bool:
        """Take out of a run what has ended and what was not begun; true when others may run for it."""
        moved = False
        again: list[Record] = []
        while run.ended:
            record, ending = run.ended.popleft()
            if ending is Ending.AGAIN and record.owned.active:
                if not record.is_suspect:
                    self._suspects.discard(record)
                again.append(record)
            elif ending is Ending.ALONE and record.owned.active:
                if not self._winding_down:
                    self._lone.append(record)
            elif ending is Ending.BEHIND and record.owned.active:
                self._lanes.finish(record)
                self._send_back(record)
                self._let_out()
            else:
                self._finish(record, done=ending is Ending.DONE)
            moved = True
        self._postpone(again)
        while True:
            try:
                record = run.waiting.pop()
            except IndexError:
                return moved
            self._lanes.first(record)
            moved = True

    def _postpone(self, records: Sequence[Record]) -> None:
        """Have them run again later, before everything else of their keys: the first of a key holds its lane."""
        due = self._clock.monotonic() + AGAIN_SECONDS
        for record in self._lanes.hold(records):
            self._held += 1
            self._wait(record, max(due, record.again_at), holds_lane=True)

    def _wait(self, record: Record, due: float, *, holds_lane: bool) -> None:
        record.due = due
        heapq.heappush(self._later, (due, next(self._ties), record, holds_lane))

    def _finish(self, record: Record, *, done: bool) -> None:
        is_retried = record.copy is not None or record.moved is not None or record.held
        if is_retried and done:
            self._prepare_next(record)
        self._leave(record)
        self._lanes.finish(record)  # before its headers are gone, which name its tenant
        if done:
            record.free()
        record.done = done
        if is_retried and isinstance(self._lanes, KeyLanes):
            if (copy := record.copy) is not None and done:
                copy.done, copy.record = True, None
                self._copies.end(copy, self._clock.monotonic())
            self._let_out()

    # --- with the lock held: what waits for retries

    def _meet(self, record: Record) -> None:
        """A source record is delivered while others of its partition wait in retry topics."""
        lane = self.lane(record.key, record.offset)
        match record.owned.order.meets(lane, record.offset):
            case Meeting.RUN:
                self._enter(record)
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
        if record.moved is not None and isinstance(self._lanes, KeyLanes) and record.owned.active:
            self._move(record)

    def _move(self, record: Record) -> None:
        """A copy was appended: those that stand behind it in its lane wait for that one."""
        assert record.moved is not None  # noqa: S101
        order, origin = record.order, record.offset if record.copy is None else record.copy.origin
        self._copies.expect(order, self.lane(record.key, origin), origin, record.moved)
        if self._ordered and isinstance(self._lanes, KeyLanes):
            for behind in self._lanes.part(record.key, lambda other: other.order is order):
                self._send_back(behind)

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

    def _send_back(self, record: Record) -> None:
        """A record that was about to run has to wait for one of its key."""
        if record.copy is None:
            self._park(record)
        else:
            self._leave(record)
            self._copies.take_back(record.copy, self._clock.monotonic())

    def _park(self, record: Record) -> None:
        record.parking = True
        self._copies.expect(record.owned.order, self.lane(record.key, record.offset), record.offset, PARKED)
        self._parked.add(record)

    def _park_later(self, record: Record) -> None:
        self._wait(record, self._clock.monotonic() + AGAIN_SECONDS, holds_lane=False)

    def _keep(self, record: Record) -> None:
        """It is too large to be parked: undone at its offset, it awaits its turn as a copy would."""
        now, order = self._clock.monotonic(), record.owned.order
        record.parking = False
        self._leave(record)
        lane = self.lane(record.key, record.offset)
        record.copy = Copy(order, lane, record.offset, PARKED, record.owned, record.offset, now, record)
        self._copies.take_in([record.copy], now)
        self._let_out()

    def _settle_parked(self) -> None:
        """Note what the broker has answered."""
        for record, error in self._parked.answered():
            if record.owned.active:
                self._answered.append((record, error))
            if error is None or not record.owned.active:
                self._leave(record)
                record.free()
                record.done = error is None
            elif is_too_large(error):
                self._keep(record)
            else:
                self._park_later(record)

    def _let_out(self) -> bool:
        """Let copies run whose turn it is."""
        if self._winding_down:
            return False
        records = self._copies.let_out()
        for record in records:
            self._enter(record)
        return bool(records)

    def _enter(self, record: Record) -> None:
        self._count(record)
        self._lanes.add(record)

    def _count(self, record: Record) -> None:
        self._in_flight += 1
        if self._batch and record.owned.suspects_end and record.is_suspect:
            self._suspects.add(record)
        self._bytes += record.size

    def _stop_waiting(self, record: Record) -> None:
        self._waiting -= 1
        self._waiting_bytes -= record.size

    def _leave(self, record: Record) -> None:
        self._in_flight -= 1
        if self._suspects:
            self._suspects.discard(record)
        self._bytes -= record.size
