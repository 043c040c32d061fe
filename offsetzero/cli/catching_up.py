"""How far something is that reads the log: records, how many a second, how long it will take; a bar in a terminal."""

import logging
import sys
import threading
from collections.abc import Generator, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, TypeAlias

from rich.console import Console

from offsetzero.cli import bars

if TYPE_CHECKING:
    from offsetzero.consumers.following import FollowingMember
    from offsetzero.consumers.runtime import GroupRuntime

    Reader: TypeAlias = GroupRuntime | FollowingMember

LOOK_SECONDS = 0.5
TELL_SECONDS = 5.0  # between lines, where there is no terminal

Stand: TypeAlias = tuple[str, int, int, int]
"""Topic and partition, where it is done up to, and where its log ends."""


@dataclass(frozen=True, slots=True)
class Sight:
    """How far it is: records done and in all since the partitions were what they are, and a second; None at first."""

    done: int
    total: int
    rate: float | None

    @property
    def left(self) -> int:
        """Records that are still to be done."""
        return self.total - self.done

    @property
    def seconds(self) -> float | None:
        """How long that will take."""
        return self.left / self.rate if self.rate else None


class Pace:
    """Tells how fast partitions are read. Pure.

    It begins anew when they are other ones: what a member has been given was read by somebody else so far.
    """

    def __init__(self) -> None:
        self._begun: dict[tuple[str, int], int] = {}
        self._since = 0.0

    def look(self, now: float, stands: Sequence[Stand]) -> Sight:
        """How far it is.

        Args:
            now: monotonic seconds.
            stands: of all partitions.
        """
        at = {(topic, number): done for topic, number, done, _ in stands}
        if at.keys() != self._begun.keys() or any(at[place] < begun for place, begun in self._begun.items()):
            self._begun, self._since = at, now
        done = sum(at.values()) - sum(self._begun.values())
        left = sum(max(0, end - reached) for _, _, reached, end in stands)
        passed = now - self._since
        return Sight(done, done + left, done / passed if passed > 0 else None)


@contextmanager
def shown(runtime: "Reader", name: str, console: Console | None = None) -> Generator[None]:
    """While a member runs, show how it catches up: a bar in a terminal, a log line now and then elsewhere.

    It is there until nothing is left, and never again.
    """
    console = console or Console(stderr=True)
    ended = threading.Event()
    show = _in_terminal if console.is_terminal else _in_log
    thread = threading.Thread(target=show, args=(runtime, name, console, ended), name="catching-up", daemon=True)
    thread.start()
    try:
        yield
    finally:
        ended.set()
        thread.join(LOOK_SECONDS * 4)


def _sights(runtime: "Reader", ended: threading.Event) -> Iterator[Sight]:
    """One after the other, until nothing is left."""
    from offsetzero.clock import SYSTEM

    pace = Pace()
    while not ended.wait(LOOK_SECONDS):
        if (stands := runtime.stands()) is None:
            continue
        sight = pace.look(SYSTEM.monotonic(), stands)
        yield sight
        if not sight.left:
            return


def _in_terminal(runtime: "Reader", name: str, console: Console, ended: threading.Event) -> None:
    with bars.progress(console) as shown, _log_above():
        task = shown.add_task(f"{name} catches up", total=None, rate="")
        for sight in _sights(runtime, ended):
            rate = f"{sight.rate:,.0f}/s" if sight.rate is not None else ""
            shown.update(task, completed=sight.done, total=max(1, sight.total), rate=rate)


@contextmanager
def _log_above() -> Generator[None]:
    """Have log lines written above the bar, through what it has put in the place of standard error."""
    streams = [one for one in logging.getLogger().handlers if isinstance(one, logging.StreamHandler)]
    before = [one.setStream(sys.stderr) for one in streams]
    try:
        yield
    finally:
        for one, stream in zip(streams, before, strict=True):
            if stream is not None:
                one.setStream(stream)


def _in_log(runtime: "Reader", name: str, _console: Console, ended: threading.Event) -> None:
    from offsetzero import logs
    from offsetzero.clock import SYSTEM

    log, told_at, sight = logs.get(__name__), SYSTEM.monotonic(), None
    for sight in _sights(runtime, ended):
        if sight.left and SYSTEM.monotonic() - told_at >= TELL_SECONDS:
            told_at = SYSTEM.monotonic()
            log.info("catching up", group=name, **_fields(sight))
    if sight is not None and not sight.left:
        log.info("caught up", group=name, records=sight.done)


def _fields(sight: Sight) -> dict[str, object]:
    seconds = sight.seconds
    return {
        "records": sight.done,
        "left": sight.left,
        "rate": round(sight.rate) if sight.rate is not None else None,
        "eta_seconds": round(seconds) if seconds is not None else None,
    }
