"""Stands for the clocks of a simulated machine; waits of the runtime go through it."""

import threading
from collections.abc import Callable
from datetime import UTC, datetime, timedelta

from simulation.baton import Baton, Process, Task

START = datetime(2025, 1, 1, tzinfo=UTC)
START_MS = 1_735_689_600_000


class Waiter:
    """Stands in a condition's queue for a thread that waits, so that only a real `notify` wakes it."""

    def __init__(self, baton: Baton, task: Task) -> None:
        self._baton = baton
        self._task = task

    def release(self) -> None:
        """What `Condition.notify` does to the lock of a waiting thread."""
        self._baton.wake(self._task)


class SimClock:
    """`offsetzero.clock.Clock` in virtual time."""

    def __init__(self, baton: Baton, process: Process) -> None:
        self._baton = baton
        self._process = process

    def now(self) -> datetime:
        return START + timedelta(seconds=self._baton.now + self._process.skew)

    def now_ms(self) -> int:
        return START_MS + round((self._baton.now + self._process.skew) * 1000)

    def monotonic(self) -> float:
        return 1000.0 + self._baton.now

    def wait(self, condition: threading.Condition, until: Callable[[], object], seconds: float | None = None) -> bool:
        baton = self._baton
        deadline = None if seconds is None else baton.now + seconds
        queue = condition._waiters  # type: ignore[attr-defined]  # where `notify` looks
        while not until():
            if deadline is not None and baton.now >= deadline:
                return False
            waiter = Waiter(baton, baton.current)
            queue.append(waiter)
            condition.release()
            try:
                baton.block(None if deadline is None else deadline - baton.now)
            finally:
                condition.acquire()
                if waiter in queue:
                    queue.remove(waiter)
        return True
