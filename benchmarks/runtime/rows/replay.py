"""A long log read from offset zero: memory must not grow with it."""

from statistics import median
from typing import Any

from measure import Bench, Contestant, rate
from report import cell, table

TITLE = "A replay: memory over time"
PARTITIONS = 6
MOST_MIB = 300
FLAT = 1.05
CONTESTANT = Contestant("offsetzero, single", "ours_replay.py")


def measure(bench: Bench) -> dict[str, Any]:
    """Run the row, once: its length is its repetition."""
    topic = bench.topic("replay", PARTITIONS, bench.events)
    result = bench.run(CONTESTANT, topic, bench.events, seconds=max(180.0, bench.events / 2_000))
    held = result.get("held", [])
    tenths = [[mib for done, mib in held if done * 10 // bench.events == tenth] for tenth in range(10)]
    return {
        "count": bench.events,
        "rate": rate(result) if "seconds" in result else None,
        "tenths": [median(found) if found else None for found in tenths],
        "most": max((mib for _, mib in held), default=None),
        "problems": result["problems"],
    }


def show(found: dict[str, Any]) -> str:
    """The row as text."""
    tenths = found["tenths"]
    first, end = tenths[1], tenths[9]
    growth = f"{end / first:.2f}" if first and end else "-"
    heads = ["after", *(f"{tenth * 10} %" for tenth in range(1, 11))]
    rows = [["MiB", *(cell(mib, ".0f") for mib in tenths)]]
    text = (
        f"{found['count']:,} events at {cell(found['rate'], ',.0f')} a second; resident memory, median of each tenth, "
        f"at most {cell(found['most'], '.0f')} MiB (target <= {MOST_MIB}); the last tenth holds {growth} times "
        f"what the second did (flat: <= {FLAT}); problems: {'; '.join(found['problems']) or 'none'}."
    )
    return f"{text}\n\n{table(heads, rows)}"
