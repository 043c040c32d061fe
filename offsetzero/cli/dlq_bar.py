"""A redrive in a terminal: its progress bar, and what Ctrl-C does."""

import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import FrameType
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from offsetzero.retry.redrive import Progress
    from offsetzero.store.dead_letter_actions import Action


@contextmanager
def bar(action: "Action") -> "Iterator[Callable[[Progress], None]]":
    """A progress bar in a terminal, on standard error; elsewhere the end says all."""
    from offsetzero.cli import bars

    with bars.bar(f"redrive {action.group}", action.letters, done=action.done) as tell:
        yield lambda progress: tell(action.done + progress.done)


@contextmanager
def stopped_by_signals() -> Iterator[threading.Event]:
    """Set by Ctrl-C and SIGTERM: what is under way is awaited and marked first. A second one ends at once."""
    stop = threading.Event()
    before = {number: signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)}

    def on_signal(number: int, _frame: FrameType | None) -> None:
        stop.set()
        for one, handler in before.items():
            signal.signal(one, handler)

    for number in before:
        signal.signal(number, on_signal)
    try:
        yield stop
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
