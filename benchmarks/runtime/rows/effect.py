"""An effect in PostgreSQL that happens once: offsetzero beside a loop that does the same statements by hand."""

from typing import Any

from measure import Bench, Contestant, turns
from report import cell, table

TITLE = "An effect in PostgreSQL, once for each event"
COUNT = 50_000
PARTITIONS = 6
BY_HAND = Contestant("written by hand, batches of 500", "hand_written.py", {"way": "batch"}, database=True)
OTHERS = [
    Contestant("offsetzero, batch", "ours_effect.py", {"way": "batch"}, database=True),
    Contestant("FastStream, batch, the same by hand", "faststream_effect.py", venv="faststream", database=True),
    Contestant("offsetzero, single", "ours_effect.py", {"way": "single"}, database=True),
    Contestant("written by hand, one by one", "hand_written.py", {"way": "single"}, database=True, most=5_000),
]
TARGETS = {"offsetzero, batch": 0.8}


def measure(bench: Bench) -> dict[str, Any]:
    """Run the row."""
    count = bench.count(COUNT, 5_000)
    topic = bench.topic("effect", PARTITIONS, count)
    return {"count": count, "contestants": turns(bench, BY_HAND, OTHERS, topic, count)}


def show(found: dict[str, Any]) -> str:
    """The row as text."""
    rows = [
        [
            name,
            cell(one["rate"], ",.0f"),
            cell(one["ratio"], ".2f"),
            f"{min(one['ratios']):.2f} to {max(one['ratios']):.2f}" if one["ratios"] else "-",
            f">= {TARGETS[name]}" if name in TARGETS else "",
            "; ".join(one["problems"]) or "none",
        ]
        for name, one in found["contestants"].items()
    ]
    head = (
        f"{found['count']:,} events, {PARTITIONS} partitions; two statements in one transaction: the claim of the "
        "event ids (`ON CONFLICT DO NOTHING RETURNING`) and the effects."
    )
    return f"{head}\n\n{table(['way', 'events/s', 'ratio', 'ratios', 'target', 'problems'], rows)}"
