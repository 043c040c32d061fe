"""How long events wait in windows that take turns: the even ones as they are, the odd ones with failures."""

import statistics
from collections import defaultdict
from collections.abc import Iterable

_WARM = 2  # windows, one of each kind


def centiles(waits: Iterable[tuple[int, int]], *, begin: int, window: float, settle: float) -> dict[str, float]:
    """The 50th and 99th centile of each kind, in milliseconds: the median over windows of each window's own.

    So a hiccup of the machine in one window decides nothing.

    Args:
        waits: when each event was published, and when it was done with, in microseconds.
        begin: when the first one was published.
        window: seconds.
        settle: seconds at the begin of a window that count for neither kind.
    """
    found: dict[int, list[float]] = defaultdict(list)
    for sent, came in waits:
        number, into = divmod((sent - begin) / 1e6, window)
        if number >= _WARM and into >= settle:
            found[int(number)].append((came - sent) / 1000)
    return {
        f"p{at}_{name}": statistics.median(
            statistics.quantiles(those, n=100)[at - 1] for number, those in found.items() if number % 2 == kind
        )
        for kind, name in enumerate(("without", "with"))
        for at in (50, 99)
    }
