"""Handlers that stand still: the runtime pauses its partitions, and resumes them without losing time."""

from statistics import median
from typing import Any

from measure import Bench, Contestant
from report import cell

TITLE = "From a resumption to the first record"
COUNT = 100_000
PARTITIONS = 6
MOST_MS = 50
CONTESTANT = Contestant("offsetzero, single", "ours_pauses.py")


def measure(bench: Bench) -> dict[str, Any]:
    """Run the row, once: it holds many pauses."""
    count = bench.count(COUNT, 30_000)
    result = bench.run(CONTESTANT, bench.topic("pauses", PARTITIONS, count), count)
    waits = result.get("waits", [])
    return {
        "count": count,
        "pauses": result.get("pauses"),
        "waits": len(waits),
        "p50": median(waits) if waits else None,
        "most": max(waits, default=None),
        "problems": result["problems"],
    }


def show(found: dict[str, Any]) -> str:
    """The row as text."""
    return (
        f"{found['count']:,} events, handlers that stand still for two seconds again and again: "
        f"{cell(found['pauses'], '.0f')} pauses of a partition, {found['waits']} resumptions; from one to the first "
        f"record {cell(found['p50'], '.1f')} ms at the median (target <= {MOST_MS}), "
        f"{cell(found['most'], '.1f')} ms at most; problems: {'; '.join(found['problems']) or 'none'}."
    )
