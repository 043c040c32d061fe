"""A redrive in a terminal: its progress bar."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
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
