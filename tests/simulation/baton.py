"""Real threads of which one at a time runs, in virtual time: who runs next, and when, follows from the seed alone.

A thread keeps the baton until it comes to a point where the real one could be held up (a call to Kafka or PostgreSQL,
a wait for another thread). There it says for how long, and the baton goes to whoever is due first.
"""

import heapq
import itertools
import random
import sys
import threading
import traceback
from collections import deque
from collections.abc import Callable
from typing import Any

HANG_SECONDS = 60.0  # of this machine's time, in which the world must go on


class Crashed(BaseException):
    """The process of this thread is dead; raised at every point that the thread still comes to."""


class Process:
    """Some threads that die together, with a wall clock of their own. A simulated machine."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.dead = False
        self.skew = 0.0  # seconds that its wall clock is ahead
        self.tasks: list[Task] = []


class Task:
    """One thread."""

    def __init__(self, name: str, process: Process) -> None:
        self.name = name
        self.process = process
        self.gate = threading.Lock()  # acquired while the thread may not run
        self.gate.acquire()
        self.turn = 0  # what would wake it for an earlier turn comes too late
        self.thread: threading.Thread | None = None
        self.finished = False
        self.owned: frozenset[int] = frozenset()  # partition numbers of its member when it began its present work
        process.tasks.append(self)

    def is_alive(self) -> bool:
        return not self.finished


class Baton:
    """Hands the right to run from thread to thread.

    Args:
        dice: all chance of a run.
        pace: seconds that a usual step takes.
        stalls: whether threads are held up now and then.
        lines: of the schedule that are kept, the last ones; None for all.
    """

    def __init__(self, dice: random.Random, pace: float, *, stalls: bool = True, lines: int | None = None) -> None:
        self.dice = dice
        self.pace = pace
        self.now = 0.0
        self.trace: deque[str] = deque(maxlen=lines)
        self.failure: str | None = None
        self.stalls = stalls  # whether threads are held up now and then
        self.on_thread: Callable[[], None] = lambda: None  # called first thing in each thread
        self._due: list[tuple[float, int, Task | Callable[[], None], int]] = []
        self._ties = itertools.count()
        self._ended = False
        self._tasks: list[Task] = []
        self._main = self.current = Task("world", Process("world"))

    # --- for the world

    @property
    def acts(self) -> bool:
        """Whether the world acts now, in whichever thread has the baton: it may not wait."""
        return self.current is self._main

    def say(self, text: str) -> None:
        """One line of the schedule."""
        if not self._ended:
            self.trace.append(f"{self.now:10.4f}  {self.current.name:<14} {text}")

    def fail(self, text: str) -> None:
        """A law is broken: the run ends here. Only the first one counts."""
        if self.failure is None:
            self.failure = text
            self.say(f"BROKEN: {text}")
            self.end()

    def end(self) -> None:
        """Let `run` return."""
        self._ended = True
        self.wake(self._main)

    def after(self, seconds: float, action: Callable[[], None]) -> None:
        """Call `action` later, between two steps of threads; it may not wait."""
        heapq.heappush(self._due, (self.now + seconds, next(self._ties), action, 0))

    def spawn(self, process: Process, name: str, target: Callable[[], Any]) -> Task:
        """Start a thread of a process; it has its first turn when it is due."""
        task = Task(f"{process.name}/{name}", process)
        task.thread = threading.Thread(target=self._run, args=(task, target), name=task.name, daemon=True)
        task.thread.start()
        self._tasks.append(task)
        self._push(self.hop(), task)
        return task

    def crash(self, process: Process) -> None:
        """Kill a process: its threads unwind, and nothing that they still do has an effect."""
        process.dead = True
        for task in process.tasks:
            self.wake(task)

    # --- for the thread that runs

    def hop(self) -> float:
        """Seconds that a usual step takes: mostly about the pace, now and then the thread is held up."""
        draw = self.dice.random()
        if draw < 0.99 or not self.stalls:
            return self.pace * draw
        return 0.4 * self.dice.random() if draw < 0.998 else 3 * self.dice.random()

    def step(self) -> None:
        """A point where others may run."""
        self.pause(self.hop())

    def pause(self, seconds: float) -> None:
        """Sleep."""
        me = self.current
        self.check(me)
        self._push(seconds, me)
        self._give(me)

    def block(self, seconds: float | None = None) -> None:
        """Wait for `wake`, `seconds` at most."""
        me = self.current
        self.check(me)
        if seconds is not None:
            self._push(seconds, me)
        self._give(me)

    def wake(self, task: Task) -> None:
        """End the wait of a thread, a moment from now."""
        self._push(self.pace * 0.1 * self.dice.random(), task)

    def check(self, task: Task) -> None:
        """Raise when the thread belongs to a dead process."""
        if task.process.dead:
            raise Crashed

    # --- the main thread

    def run(self) -> None:
        """Let the world go on until `end`; then end all threads, whatever they do."""
        while not self._ended:
            self._give(self._main)
        for task in self._tasks:
            self.crash(task.process)
        while any(not task.finished for task in self._tasks):
            self._give(self._main)

    def stacks(self) -> str:
        """Where every thread is."""
        frames = sys._current_frames()
        shown = []
        for task in self._tasks:
            frame = frames.get(task.thread.ident or 0) if task.thread and not task.finished else None
            if frame is not None:
                lines = [
                    f"{one.filename.rpartition('/')[2]}:{one.lineno} {one.name}"
                    for one in traceback.extract_stack(frame)
                ]
                shown.append(f"{task.name}: {' < '.join(reversed(lines[-9:-2]))}")
        return "\n".join(shown)

    # --- inside

    def _run(self, task: Task, target: Callable[[], Any]) -> None:
        task.gate.acquire()
        try:
            self.check(task)
            self.on_thread()
            target()
        except Crashed:
            pass
        except BaseException:
            self.fail(f"{task.name} died:\n{traceback.format_exc()}")
        sys.settrace(None)
        task.finished = True
        if self._ended:
            self.wake(self._main)
        self._give(None)

    def _push(self, seconds: float, task: Task) -> None:
        heapq.heappush(self._due, (self.now + seconds, next(self._ties), task, task.turn))

    def _give(self, me: Task | None) -> None:
        """Let the next one run; returns when it is the turn of `me`."""
        while True:
            if not self._due:
                self.fail("no thread can go on, and nothing will ever happen")
            time, _, target, turn = heapq.heappop(self._due)
            self.now = max(self.now, time)
            if not isinstance(target, Task):
                self._act(target)
                continue
            if turn != target.turn or target.finished:
                continue
            target.turn += 1
            self.current = target
            if target is not me:
                target.gate.release()
                if me is None:
                    return
                if me is not self._main:
                    me.gate.acquire()
                    break
                seen = -1.0
                while not me.gate.acquire(timeout=HANG_SECONDS):
                    if self.now == seen:
                        raise RuntimeError(f"{self.current.name} does not give the baton back\n{self.stacks()}")
                    seen = self.now
            break
        if me is not self._main:
            self.check(me)

    def _act(self, action: Callable[[], None]) -> None:
        if self._ended:
            return
        before, self.current = self.current, self._main
        try:
            action()
        except Exception:
            self.fail(f"the simulation itself failed:\n{traceback.format_exc()}")
        finally:
            self.current = before
