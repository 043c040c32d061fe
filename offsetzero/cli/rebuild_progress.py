"""How many processes read at once in a rebuild, and what is shown of them."""

import os
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from rich.console import Console

from offsetzero.cli import bars
from offsetzero.cli.catching_up import Sight
from offsetzero.clock import SYSTEM
from offsetzero.consumers.rebuilding.reach import Reach

TELL_SECONDS = 5.0  # between lines, where there is no terminal


def processes(wanted: int | None, reach: Reach) -> int:
    """How many members read at once: one a core, and no more than there are partitions of a source."""
    numbers = {number for _, number in reach.end}
    return min(wanted or len(os.sched_getaffinity(0)) or 1, max(1, len(numbers)))


@contextmanager
def progress(name: str) -> Iterator[Callable[[Sight, int], None]]:
    """Shows how far it is: a bar in a terminal, a line now and then elsewhere."""
    console = Console(stderr=True)
    told_at = 0.0
    with bars.progress(console) as bar:
        task = bar.add_task(name, total=None, rate="")

        def tell(sight: Sight, total: int) -> None:
            nonlocal told_at
            rate = f"{sight.rate:,.0f}/s" if sight.rate else ""
            bar.update(task, completed=total - sight.left, total=max(1, total), rate=rate)
            now = SYSTEM.monotonic()
            if not console.is_terminal and now - told_at >= TELL_SECONDS:
                told_at = now
                left = f", about {sight.seconds:,.0f} s left" if sight.seconds and sight.left else ""
                print(f"{name}: {total - sight.left:,} of {total:,} records {rate}{left}", file=sys.stderr, flush=True)

        yield tell
