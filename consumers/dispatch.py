"""Between the polling thread and the workers: what may run now, what waits for its time, how much is in flight."""

import heapq
import itertools
import threading
from collections.abc import Callable, Collection, Iterable

from offsetzero.clock import Clock
from offsetzero.consumers.lanes import KeyLanes
from offsetzero.consumers.record import OwnedPartition, Record


class Dispatcher:
    """Hands runnable records to workers, one of a key at a time. Any thread may call any method.

    Args:
        clock: its monotonic time is what due times are measured with.
    """

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._wake: Callable[[], None] = lambda: None
        self._lock = threading.Lock()
        self._runnable = threading.Condition(self._lock)
        self._room = threading.Condition(self._lock)
        self._lanes = KeyLanes()
        self._later: list[tuple[float, int, Record, bool]] = []  # due, tie-break, record, holds its lane
        self._ties = itertools.count()
        self._closed = False
        self._in_flight = 0
        self._bytes = 0
        self._waiting = 0
        self._waiting_bytes = 0
        self._running: dict[Record, float] = {}  # taken and not ended, with the time of the start

    def on_runnable(self, wake: Callable[[], None]) -> None:
        """Have `wake` called, outside the lock, when a record may have become runnable; it must not block."""
        self._wake = wake

    def add(self, records: Iterable[Record]) -> None:
        """Queue delivered records in the order of their offsets."""
        with self._lock:
            for record in records:
                self._enter(record)
            self._runnable.notify_all()
        self._wake()

    def add_later(self, record: Record, due: float) -> None:
        """Queue a record that may not run before `due` (monotonic seconds)."""
        with self._lock:
            self._waiting += 1
            self._waiting_bytes += record.size
            heapq.heappush(self._later, (due, next(self._ties), record, False))

    def postpone(self, record: Record, seconds: float) -> None:
        """Give a taken record back: it runs again after `seconds`, before everything else of its key."""
        with self._lock:
            self._running.pop(record)
            self._room.notify_all()
            if not record.owned.active:
                self._drop(record)
                return
            due = self._clock.monotonic() + seconds
            heapq.heappush(self._later, (due, next(self._ties), record, True))

    def tick(self) -> float | None:
        """Let records run whose time has come.

        Returns:
            Seconds until the next one is due, None when nothing waits.
        """
        moved = False
        with self._lock:
            now = self._clock.monotonic()
            while self._later and self._later[0][0] <= now:
                _, _, record, holds_lane = heapq.heappop(self._later)
                moved = True
                if holds_lane:
                    self._lanes.again(record)
                else:
                    self._stop_waiting(record)
                    self._enter(record)
            if moved:
                self._runnable.notify_all()
            wait = max(0.0, self._later[0][0] - now) if self._later else None
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
                elif holds_lane:
                    self._drop(record)
                else:
                    self._stop_waiting(record)
            heapq.heapify(kept)
            self._later = kept
            for record in self._lanes.purge():
                self._leave(record)
            self._runnable.notify_all()
        self._wake()

    def take(self) -> Record | None:
        """Wait for a record that may run now; None once closed. Records of revoked partitions are dropped."""
        with self._lock:
            while not self._closed:
                record = self._next()
                if record is not None:
                    return record
                self._runnable.wait()
            return None

    def take_nowait(self) -> Record | None:
        """A record that may run now, or None."""
        with self._lock:
            return None if self._closed else self._next()

    def finish(self, record: Record, *, done: bool) -> None:
        """A taken record has ended.

        Args:
            record: what `take` gave.
            done: whether its outcome is safe; otherwise it stays uncommitted and will be read again.
        """
        with self._lock:
            self._running.pop(record)
            self._leave(record)
            if done:
                record.free()
            record.done = done
            self._lanes.finish(record)
            more = self._lanes.ready > 0
            if more:
                self._runnable.notify()
            self._room.notify_all()
        if more:
            self._wake()

    def wait_for_room(self, limit: int, limit_bytes: int, seconds: float) -> int:
        """Wait until fewer than `limit` records and `limit_bytes` bytes are in flight, `seconds` at most.

        Returns:
            How many records there is room for; 0 when the time ran out.
        """
        with self._lock:
            self._clock.wait(self._room, lambda: self._space(limit, limit_bytes) > 0, seconds)
            return self._space(limit, limit_bytes)

    def close(self) -> None:
        """Hand out nothing more; workers that wait in `take` get None."""
        with self._lock:
            self._closed = True
            self._runnable.notify_all()

    def wait_idle(self, seconds: float, partitions: Collection[OwnedPartition] | None = None) -> list[Record]:
        """Wait until no record (of the given partitions) runs, `seconds` at most.

        Returns:
            The records that still run.
        """

        def left() -> list[Record]:
            return [r for r in self._running if partitions is None or r.owned in partitions]

        with self._lock:
            self._clock.wait(self._room, lambda: not left(), seconds)
            return left()

    @property
    def in_flight(self) -> int:
        """Records that are queued or running; those that wait for their due time not counted."""
        return self._in_flight

    @property
    def running(self) -> int:
        """Records whose handlers run."""
        return len(self._running)

    @property
    def waiting(self) -> int:
        """Records that wait for their due time."""
        return self._waiting

    @property
    def waiting_bytes(self) -> int:
        """What they hold in memory."""
        return self._waiting_bytes

    def has_drained(self, limit: int, limit_bytes: int) -> bool:
        """Whether no more than `limit` records and `limit_bytes` bytes are in flight."""
        return self._in_flight <= limit and self._bytes <= limit_bytes

    def _space(self, limit: int, limit_bytes: int) -> int:
        return max(0, limit - self._in_flight) if self._bytes < limit_bytes else 0

    def _enter(self, record: Record) -> None:
        self._in_flight += 1
        self._bytes += record.size
        self._lanes.add(record)

    def _stop_waiting(self, record: Record) -> None:
        self._waiting -= 1
        self._waiting_bytes -= record.size

    def _leave(self, record: Record) -> None:
        self._in_flight -= 1
        self._bytes -= record.size

    def _next(self) -> Record | None:
        while (record := self._lanes.take()) is not None:
            if record.owned.active:
                self._running[record] = self._clock.monotonic()
                return record
            self._drop(record)
        return None

    def _drop(self, record: Record) -> None:
        self._leave(record)
        self._lanes.finish(record)
