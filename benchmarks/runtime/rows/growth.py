"""A long log into a generation of the catalogue: time must grow with it, and memory must not."""

from itertools import pairwise
from statistics import median
from typing import Any

from measure import Bench, rate
from report import cell, table
from rows.rebuild import OURS, PARTITIONS

TITLE = "A rebuild of a long log: time and memory"
LEAST = 100_000
FLAT = 1.05


def measure(bench: Bench) -> dict[str, Any]:
    """Run the row, once: its length is its repetition."""
    count = bench.events
    topic = bench.documents("growth", PARTITIONS, count)
    result = bench.run(OURS, topic, count, seconds=max(600.0, count / 500))
    reached = [(done, at) for at, done in result.get("reached", [])]
    sizes = [size for size in (LEAST * 10**power for power in range(9)) if size < count] + [count]
    held = result.get("held", [])
    tenths = [[mib for done, mib in held if min(done, count - 1) * 10 // count == tenth] for tenth in range(10)]
    return {
        "count": count,
        "rate": rate(result) if "seconds" in result else None,
        "seconds": [[size, _when(reached, size)] for size in sizes],
        "tenths": [median(found) if found else None for found in tenths],
        "rates": [_rate(reached, count * tenth // 10, count * (tenth + 1) // 10) for tenth in range(10)],
        "problems": result["problems"],
    }


def _when(reached: list[tuple[int, float]], done: int) -> float | None:
    """Seconds from the first event to that many."""
    for (before, then), (after, now) in pairwise(reached):
        if before <= done <= after and after > before:
            return then + (now - then) * (done - before) / (after - before) - reached[0][1]
    return None


def _rate(reached: list[tuple[int, float]], begin: int, end: int) -> float | None:
    one, other = _when(reached, begin), _when(reached, end)
    return (end - begin) / (other - one) if one is not None and other is not None and other > one else None


def show(found: dict[str, Any]) -> str:
    """The row as text."""
    first, end = found["tenths"][1], found["tenths"][9]
    growth = f"{end / first:.2f}" if first and end else "-"
    times = "; ".join(f"{size:,} events in {cell(seconds, ',.1f')} s" for size, seconds in found["seconds"])
    rows = [
        ["events/s", *(cell(one, ",.0f") for one in found["rates"])],
        ["MiB", *(cell(one, ",.0f") for one in found["tenths"])],
    ]
    text = (
        f"{times}: {cell(found['rate'], ',.0f')} a second. By tenths: the rate, and the resident memory of the larger "
        f"member (median); the last tenth holds {growth} times what the second did (flat: <= {FLAT}); problems: "
        f"{'; '.join(found['problems']) or 'none'}."
    )
    heads = ["after", *(f"{tenth * 10} %" for tenth in range(1, 11))]
    return f"{text}\n\n{table(heads, rows)}"
