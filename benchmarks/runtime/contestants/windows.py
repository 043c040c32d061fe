"""How long events wait in windows that take turns: the even ones as they are, the odd ones with failures."""

import statistics
from collections import defaultdict
from collections.abc import Iterable

_WARM = 2  # windows, one of each kind


def centiles(
    waits: Iterable[tuple[int, int, int]], *, begin: int, window: float, settle: float, name: str = ""
) -> dict[str, float]:
    """The 50th and 99th centile of each kind, in milliseconds: the median over windows of each window's own.

    So a hiccup of the machine in one window decides nothing. `rise` is the median of how much the 99th centile of a
    window with failures is above the mean of those beside it: what changes in the course of a run weighs on both.

    Args:
        waits: when each event was published, and when its wait began and ended, in microseconds.
        begin: when the first one was published.
        window: seconds.
        settle: seconds at the begin of a window that count for neither kind.
        name: put in the names of what is returned.
    """
    found: dict[int, list[float]] = defaultdict(list)
    for sent, since, until in waits:
        number, into = divmod((sent - begin) / 1e6, window)
        if number >= _WARM and into >= settle:
            found[int(number)].append((until - since) / 1000)
    each = {number: statistics.quantiles(those, n=100) for number, those in found.items()}
    rises = []
    for number, those in each.items():
        beside = [each[other][98] for other in (number - 1, number + 1) if other in each]
        if number % 2 == 1 and beside:
            rises.append(those[98] / statistics.mean(beside) - 1)
    return {
        f"{name}rise": statistics.median(rises),
        **{
            f"p{at}_{name}{kind}": statistics.median(
                those[at - 1] for number, those in each.items() if number % 2 == odd
            )
            for odd, kind in enumerate(("without", "with"))
            for at in (50, 99)
        },
    }
