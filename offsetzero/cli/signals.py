"""What Ctrl-C and SIGTERM do to commands that are at work."""

import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType


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


@contextmanager
def sigterm_as_ctrl_c() -> Iterator[None]:
    """SIGTERM raises KeyboardInterrupt in the block, as Ctrl-C does."""
    before = signal.signal(signal.SIGTERM, signal.default_int_handler)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)
