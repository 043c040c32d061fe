"""Watching one reader: its time, its answer, its end, and what it leaves behind."""

import os
import resource
import selectors
import signal
import sys
from pathlib import Path

from offsetzero.clock import SYSTEM
from offsetzero.consumers.groups.extraction.endings import Ending, Stop
from offsetzero.consumers.groups.extraction.sandbox import Limits

_CHUNK = 1024 * 1024
_LOOK_SECONDS = 0.5  # between two looks at a reader's memory
_FULL_SECONDS = 2.0  # with no memory left a process may try and fail for minutes, over millions of small things
_FULL = 4 * 1024 * 1024  # bytes below the limit that count as none
_ORPHANS_SECONDS = 5.0
_RSS_UNIT = 1 if sys.platform == "darwin" else 1024


def until_end(pid: int, reading: int, connection: int, limits: Limits) -> tuple[Ending, bytes]:
    """Wait until a reader has ended, by itself or at its limits, and take its answer.

    Args:
        pid: of the reader, a child of this process.
        reading: descriptor of the pipe that it answers through.
        connection: descriptor of the socket to the group: when that is closed, all this is for nothing.
        limits: of the document.

    Raises:
        EOFError: the group is gone; the reader has been ended.
    """
    os.set_blocking(reading, False)
    answer = bytearray()
    ended = _pidfd(pid)
    try:
        stop = _watch(pid, ended, reading, connection, answer, limits)
    finally:
        if ended is not None:
            os.close(ended)
        used = _end(pid)
    while len(answer) <= limits.output and _take(reading, answer, wait=False):
        pass
    return Ending(stop, *used), bytes(answer[: limits.output])


def _watch(pid: int, ended: int | None, reading: int, connection: int, answer: bytearray, limits: Limits) -> Stop:
    """Take the answer until the reader has ended, or is to be ended."""
    deadline = SYSTEM.monotonic() + limits.wall_seconds
    memory = _Memory(pid)
    with selectors.DefaultSelector() as selector:
        for descriptor in (reading, connection, *([] if ended is None else [ended])):
            selector.register(descriptor, selectors.EVENT_READ)
        while True:
            left = max(0.0, deadline - SYSTEM.monotonic())
            ready = {key.fd for key, _ in selector.select(min(left, _LOOK_SECONDS))}
            if connection in ready:
                raise EOFError
            silent = reading in ready and not _take(reading, answer)
            if silent:
                selector.unregister(reading)
            stop = _stop(len(answer) > limits.output, memory, deadline)
            # Where the kernel cannot tell of the end, a closed pipe does: the reader never closes it before.
            if stop is not Stop.NOT or (silent if ended is None else ended in ready):
                return stop


def _stop(flooded: bool, memory: "_Memory", deadline: float) -> Stop:
    if flooded:
        return Stop.OUTPUT
    if memory.is_stuck():
        return Stop.MEMORY
    return Stop.TIME if SYSTEM.monotonic() >= deadline else Stop.NOT


class _Memory:
    """Whether a process has had no memory left for some time."""

    def __init__(self, pid: int) -> None:
        self._pid = pid
        self._full_since: float | None = None

    def is_stuck(self) -> bool:
        now = SYSTEM.monotonic()
        if not self._is_full():
            self._full_since = None
        elif self._full_since is None:
            self._full_since = now
        return self._full_since is not None and now - self._full_since >= _FULL_SECONDS

    def _is_full(self) -> bool:
        try:
            limit = resource.prlimit(self._pid, resource.RLIMIT_AS)[0]
            pages = int(Path(f"/proc/{self._pid}/statm").read_text().split()[0])
        except (AttributeError, OSError):  # not Linux
            return False
        return limit != resource.RLIM_INFINITY and pages * resource.getpagesize() > limit - _FULL


def end_orphans() -> None:
    """End what a reader has started and left (its orphans are children of this process).

    Ends this process when they cannot be ended: its own end is noticed, theirs would not be.
    """
    deadline = SYSTEM.monotonic() + _ORPHANS_SECONDS
    while True:
        try:
            if os.waitpid(-1, os.WNOHANG)[0]:
                continue
        except ChildProcessError:
            return
        for pid in _children():
            os.kill(pid, signal.SIGKILL)
        if SYSTEM.monotonic() > deadline:
            os._exit(1)


def _take(reading: int, answer: bytearray, *, wait: bool = True) -> bool:
    """Take what is in the pipe; False at its end, and when it is empty and there is nothing to wait for."""
    try:
        data = os.read(reading, _CHUNK)
    except BlockingIOError:
        return wait
    answer += data
    return bool(data)


def _end(pid: int) -> tuple[int, float, int]:
    """End and reap a reader: its exit status (negative: signal), seconds of computing, bytes of memory."""
    os.kill(pid, signal.SIGKILL)  # nothing to one that has ended already: it keeps its own status
    _, status, used = os.wait4(pid, 0)
    memory = max(0, used.ru_maxrss * _RSS_UNIT - _resident())
    return os.waitstatus_to_exitcode(status), used.ru_utime + used.ru_stime, memory


def _resident() -> int:
    """Bytes of memory that this process has, and that a fork of it begins with."""
    try:
        return int(Path("/proc/self/statm").read_text().split()[1]) * resource.getpagesize()
    except OSError:
        return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * _RSS_UNIT


def _pidfd(pid: int) -> int | None:
    try:
        return os.pidfd_open(pid)
    except (AttributeError, OSError):  # not Linux, or forbidden by what this runs in
        return None


def _children() -> list[int]:
    try:
        return [int(pid) for pid in Path(f"/proc/self/task/{os.getpid()}/children").read_text().split()]
    except OSError:
        return []
