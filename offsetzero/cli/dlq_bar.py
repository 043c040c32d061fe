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
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, TextColumn, TimeRemainingColumn
    from rich.progress import Progress as Bar

    console = Console(stderr=True)
    columns = (
        TextColumn("{task.description}"),
        BarColumn(),
        MofNCompleteColumn(),
        TextColumn("{task.fields[rate]}"),
        TimeRemainingColumn(),
    )
    with Bar(*columns, console=console, disable=not console.is_terminal) as shown:
        task = shown.add_task(f"redrive {action.group}", total=action.letters, completed=action.done, rate="")

        def tell(progress: "Progress") -> None:
            speed = shown.tasks[0].speed
            shown.update(
                task, completed=action.done + progress.done, rate=f"{speed:,.0f}/s" if speed is not None else ""
            )

        yield tell


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
