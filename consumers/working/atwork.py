"""What a worker's handler is doing, and the time limit on it: exactly one of the two ends a handling.

A thread cannot be ended from outside. So a handler that takes too long is given up: its record is taken from its worker
(`Dispatcher.abandon`), and whatever it still does is without effect, because the worker learns of it in the moment in
which the function returns, before anything is committed, appended or remembered on the record.
"""

import asyncio
import contextlib
import functools
import itertools
import os
import socket
import sys
import sysconfig
import threading
from collections.abc import Callable, Iterable, Iterator
from contextvars import ContextVar
from pathlib import Path
from types import FrameType
from typing import Any

import psycopg

from offsetzero.clock import Clock
from offsetzero.consumers.working.transaction import is_async

_OURS = str(Path(__file__).parents[1])
_LIBRARIES = tuple({*map(sysconfig.get_path, ("stdlib", "platstdlib", "purelib", "platlib")), "<"})
TIMED_OUT = "handler-timeout"
"""The reason of the failure that becomes of a handling that was given up."""
CANCEL_SECONDS = 5.0  # for PostgreSQL to take the order to end a statement


class Abandoned(Exception):
    """The time limit came first: the handling is another worker's by now."""


class AtWork:
    """One worker's function of the group, while it runs. One for each thread, or for each task of an event loop.

    The worker's side is `enter` and `leave`; any thread may call the rest.

    Args:
        clock: when the function was entered.
        task: of an event loop; None for a thread.
    """

    __slots__ = ("_begun", "_clock", "_ctx", "_lock", "_maker", "_since", "_taken", "_thread", "task")

    def __init__(self, clock: Clock, task: "asyncio.Task[Any] | None" = None) -> None:
        self._clock = clock
        self._lock = threading.Lock()
        self._ctx: Any = None
        self._since: float | None = None
        self._begun = clock.monotonic()
        self._taken = False
        self._maker = self._thread = threading.get_ident()
        self.task = task

    def begin(self, now: float) -> None:
        """The worker begins with another record."""
        self._begun = now

    def enter(self, ctx: Any) -> None:
        """A function of the group is about to be called; `ctx` may have its connection.

        Raises:
            Abandoned: an earlier one took too long.
        """
        with self._lock:
            if self._taken:
                raise Abandoned
            self._thread = threading.get_ident()  # a sync function of an async group has one of its own
            self._ctx, self._since = ctx, self._clock.monotonic()

    def leave(self) -> None:
        """It has returned, or raised.

        Raises:
            Abandoned: too late.
        """
        with self._lock:
            self._ctx = self._since = None
            if self._taken:
                raise Abandoned

    def take(self, seconds: float, *, whole: bool = False) -> bool:
        """Give the function up if it has been at work for so long; once, and from then on `leave` raises.

        Args:
            seconds: since it was entered.
            whole: since the work on its record was begun, rather.
        """
        with self._lock:
            if self._taken or self._since is None:
                return False
            if self._clock.monotonic() - (self._begun if whole else self._since) < seconds:
                return False
            self._taken = True
            return True

    @property
    def is_entered(self) -> bool:
        """Whether the function has not returned yet."""
        return self._since is not None

    def cut(self) -> None:
        """Take its database connection from a sync function that was given up: what it has written is rolled back.

        The row that claims its event would otherwise keep the next attempt waiting. May take some seconds; the
        worker's own use of the connection waits for it.
        """
        with self._lock:
            connection = getattr(self._ctx, "connection", None)
            if isinstance(connection, psycopg.Connection):
                with contextlib.suppress(psycopg.Error, OSError):
                    connection.cancel_safe(timeout=CANCEL_SECONDS)
                _shut(connection)

    def cut_async(self) -> None:
        """The same for an async function that goes on although it was cancelled; called in its loop."""
        connection = getattr(self._ctx, "connection", None)
        if isinstance(connection, psycopg.AsyncConnection):
            _shut(connection)

    def where(self) -> str | None:
        """What is executed now: the innermost line of the group's own code, such as `mine.py:12 in put`."""
        if self.task is not None and self._thread == self._maker:
            return line_of(reversed(list(_awaiting(self.task))))
        return line_of(_calling(self._thread))


AT_WORK: ContextVar[AtWork | None] = ContextVar("at_work", default=None)
"""Of this thread or task; sync functions of an async group see that of their task."""


def limited(function: Callable[..., Any]) -> Callable[..., Any]:
    """A function of a group with a time limit: it counts only when it ends before it is given up."""
    if is_async(function):

        @functools.wraps(function)
        async def call_async(argument: Any, ctx: Any) -> Any:
            if (at_work := AT_WORK.get()) is None:
                return await function(argument, ctx)
            at_work.enter(ctx)
            try:
                return await function(argument, ctx)
            finally:
                at_work.leave()

        return call_async

    @functools.wraps(function)
    def call(argument: Any, ctx: Any) -> Any:
        if (at_work := AT_WORK.get()) is None:
            return function(argument, ctx)
        at_work.enter(ctx)
        try:
            return function(argument, ctx)
        finally:
            at_work.leave()

    return call


def raise_if_abandoned(error: BaseException) -> None:
    """Pass on that a handling is another worker's by now, whatever it was wrapped into.

    Raises:
        Abandoned: it is.
    """
    if isinstance(error, Abandoned) or isinstance(error.__cause__, Abandoned):
        raise Abandoned from None


def _shut(connection: psycopg.Connection[Any] | psycopg.AsyncConnection[Any]) -> None:
    """End a connection from another thread: the server rolls back, and the owner's next look at it fails."""
    with (
        contextlib.suppress(psycopg.Error, OSError),
        socket.socket(fileno=os.dup(connection.fileno())) as copy,
    ):
        copy.shutdown(socket.SHUT_RDWR)


def line_of_thread(thread: int) -> str | None:
    """What a thread executes now, as `AtWork.where` says it."""
    return line_of(_calling(thread))


def line_of(frames: Iterable[FrameType]) -> str | None:
    """The innermost line that is neither ours nor a library's, else the one next to ours; frames from within."""
    below = list(itertools.takewhile(lambda one: str(Path(one.f_code.co_filename).parent) != _OURS, frames))
    if not below:
        return None
    frame = next((one for one in below if not one.f_code.co_filename.startswith(_LIBRARIES)), below[-1])
    return f"{Path(frame.f_code.co_filename).name}:{frame.f_lineno} in {frame.f_code.co_name}"


def _calling(thread: int) -> Iterator[FrameType]:
    frame = sys._current_frames().get(thread)
    while frame is not None:
        yield frame
        frame = frame.f_back


def _awaiting(task: "asyncio.Task[Any]") -> Iterator[FrameType]:
    """From the task's own coroutine to what it waits for in the end."""
    awaited: Any = task.get_coro()
    while awaited is not None:
        frame = getattr(awaited, "cr_frame", None) or getattr(awaited, "gi_frame", None)
        if frame is not None:
            yield frame
        awaited = getattr(awaited, "cr_await", None) or getattr(awaited, "gi_yieldfrom", None)
