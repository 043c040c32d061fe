"""Takes the baton from a thread at any line of the runtime, as the interpreter may take the processor.

Without it threads change only where they call something or wait, which hides most races between two lines.
"""

import sys
import threading
from collections.abc import Callable, Generator
from contextlib import contextmanager
from pathlib import Path
from types import FrameType, SimpleNamespace
from typing import Any

from offsetzero.consumers.reading import opening, transaction_commits
from offsetzero.consumers.working import appends, dispatch, kafka_transaction
from simulation.baton import Baton, Task

CHANCE = 0.01  # that a thread is held up at a line
# In which threads share something. Not `calls`: in Python 3.11 `cached_property` holds a lock around what it calls.
_MODULES = """
appends assignment batches commits copies database dispatch handling kafka_commits kafka_transaction lanes later
loop_workers membership opening order parking partition_lanes poll pressure run runs settle transaction_commits
transactional turns workers
"""
_LOCKING: list[Any] = [appends, dispatch, kafka_transaction, opening, transaction_commits]
_CONSUMERS = Path(dispatch.__file__).parents[1]
_FILES = frozenset(str(path) for path in _CONSUMERS.rglob("*.py") if path.stem in _MODULES.split())


class SimLock:
    """As `threading.Lock`, whose holder may be held up: others wait for the baton instead of for ever."""

    def __init__(self, baton: Baton) -> None:
        self._baton = baton
        self._held = False
        self._waiting: list[Task] = []

    def acquire(self, blocking: bool = True) -> bool:
        while self._held:
            if not blocking:
                return False
            self._waiting.append(self._baton.current)
            self._baton.block()
        self._held = True
        return True

    def release(self) -> None:
        self._held = False
        for task in self._waiting:
            self._baton.wake(task)
        self._waiting.clear()

    def __enter__(self) -> bool:
        return self.acquire()

    def __exit__(self, *_: object) -> None:
        self.release()


@contextmanager
def preempting(baton: Baton) -> Generator[None]:
    """Let threads that start meanwhile be held up at lines of `offsetzero/consumers`."""

    def condition(lock: Any = None) -> threading.Condition:
        return threading.Condition(lock or SimLock(baton))

    locks = SimpleNamespace(Lock=lambda: SimLock(baton), Condition=condition)

    def trace(frame: FrameType, event: str, argument: Any) -> Callable[..., Any] | None:
        if frame.f_code.co_filename not in _FILES:
            return None
        if event == "line" and not baton.acts and baton.dice.random() < CHANCE:
            baton.step()
        return trace

    for module in _LOCKING:
        module.threading = locks
    baton.on_thread = lambda: sys.settrace(trace)
    try:
        yield
    finally:
        for module in _LOCKING:
            module.threading = threading
