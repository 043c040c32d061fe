"""A progress bar in a terminal, on standard error: records, how many a second, how long it will take."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn


@contextmanager
def bar(name: str, total: int, console: Console | None = None) -> Iterator[Callable[[int], None]]:
    """Show how far something is; the yielded function is told how many records are done. Elsewhere it is silent."""
    console = console or Console(stderr=True)
    columns = (
        TextColumn("{task.description}"),
        BarColumn(),
        MofNCompleteColumn(),
        TextColumn("{task.fields[rate]}"),
        TimeRemainingColumn(),
    )
    with Progress(*columns, console=console, disable=not console.is_terminal) as shown:
        task = shown.add_task(name, total=total, rate="")

        def tell(done: int) -> None:
            speed = shown.tasks[0].speed
            shown.update(task, completed=done, rate=f"{speed:,.0f}/s" if speed is not None else "")

        yield tell
