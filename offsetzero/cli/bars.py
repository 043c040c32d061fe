"""Progress in a terminal, on standard error, of what is counted in records."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn


def progress(console: Console) -> Progress:
    """Bars with a count, a `rate` that their owner words, and the time that is left; none without a terminal."""
    columns = (
        TextColumn("{task.description}"),
        BarColumn(),
        MofNCompleteColumn(),
        TextColumn("{task.fields[rate]}"),
        TimeRemainingColumn(),
    )
    return Progress(*columns, console=console, disable=not console.is_terminal)


@contextmanager
def bar(name: str, total: int, console: Console | None = None, *, done: int = 0) -> Iterator[Callable[[int], None]]:
    """Show how far something is; the yielded function is told how many records are done. Elsewhere it is silent.

    Args:
        name: shown before the bar.
        total: how many records there are.
        console: where to; standard error by default.
        done: how many were done before.
    """
    with progress(console or Console(stderr=True)) as shown:
        task = shown.add_task(name, total=total, completed=done, rate="")

        def tell(done: int) -> None:
            speed = shown.tasks[0].speed
            shown.update(task, completed=done, rate=f"{speed:,.0f}/s" if speed is not None else "")

        yield tell
