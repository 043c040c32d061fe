"""A generation of the catalogue from offset zero, beside the loop that only reads the same log and decodes it."""

import os
from typing import Any

from measure import Bench, Contestant, turns
from report import cell, table

TITLE = "A rebuild: the catalogue from offset zero"
COUNT = 200_000
PARTITIONS = 6
CORES = os.cpu_count() or 1
TARGET = 0.5


def loops(name: str, members: int) -> Contestant:
    """The ceiling."""
    return Contestant(name, "loops.py", {"partitions": PARTITIONS, "members": members})


CEILING = loops("consume(500) loop, decoded (the ceiling)", 1)
OURS = Contestant("offsetzero, a member for each core", "ours_rebuild.py", {"members": CORES}, database=True)
OTHERS = [OURS, loops("the loop, a process for each core", CORES)]


def measure(bench: Bench) -> dict[str, Any]:
    """Run the row."""
    count = bench.count(COUNT, 10_000)
    topic = bench.documents("rebuild", PARTITIONS, count)
    return {"count": count, "cores": CORES, "contestants": turns(bench, CEILING, OTHERS, topic, count)}


def show(found: dict[str, Any]) -> str:
    """The row as text."""
    rows = [
        [
            name,
            cell(one["rate"], ",.0f"),
            cell(one["ratio"], ".2f"),
            f"{min(one['ratios']):.2f} to {max(one['ratios']):.2f}" if one["ratios"] else "-",
            cell(one["cpu_us"], ".1f"),
            cell(one["server_us"], ".1f") if "server_us" in one else "",
            f">= {TARGET}" if name == OURS.name else "",
            "; ".join(one["problems"]) or "none",
        ]
        for name, one in found["contestants"].items()
    ]
    head = (
        f"{found['count']:,} events (uploads, uploads again, deletions, events twice), {PARTITIONS} partitions, "
        f"{found['cores']} cores; from the first event to the last. Microseconds of CPU time an event: of the members, "
        "and of PostgreSQL."
    )
    heads = ["way", "events/s", "ratio", "ratios", "CPU us", "PostgreSQL us", "target", "problems"]
    return f"{head}\n\n{table(heads, rows)}"
