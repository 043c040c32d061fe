"""A handler that does nothing: how near each way of consuming comes to the client's own loop."""

from typing import Any

from measure import Bench, Contestant, turns
from report import cell, table

TITLE = "A handler that does nothing"
COUNT = 200_000
PARTITIONS = 6
CEILING = Contestant("consume(500) loop (the ceiling)", "loop.py")
TARGETS = {
    "offsetzero, batch": 1.2,
    "offsetzero, batch, no field read": None,
    "offsetzero, single": 0.7,
    "offsetzero, single, no field read": 1.4,
}
OURS = [
    Contestant("offsetzero, batch", "ours_noop.py", {"way": "batch"}),
    Contestant("offsetzero, batch, no field read", "ours_noop.py", {"way": "batch-unread"}),
    Contestant("offsetzero, single", "ours_noop.py", {"way": "single"}),
    Contestant("offsetzero, single, no field read", "ours_noop.py", {"way": "single-unread"}),
]
PEERS = [
    Contestant("poll() loop", "loop.py", {"way": "poll"}),
    Contestant("confluent DeserializingConsumer", "loop.py", {"way": "deserializing"}),
    Contestant("FastStream, batch", "faststream_confluent.py", {"way": "batch"}, "faststream"),
    Contestant("quixstreams", "quix.py", venv="quixstreams"),
    Contestant("sentry-arroyo", "arroyo_run_task.py", venv="arroyo", most=100_000),
    Contestant("faust-streaming", "faust_agent.py", venv="faust", most=50_000),
    Contestant("FastStream, single", "faststream_confluent.py", {"way": "single"}, "faststream", most=20_000),
    Contestant("pyrallel-consumer", "pyrallel.py", venv="pyrallel", most=20_000),
]


def measure(bench: Bench) -> dict[str, Any]:
    """Run the row."""
    count = bench.count(COUNT, 10_000)
    topic = bench.topic("noop", PARTITIONS, count)
    return {"count": count, "contestants": turns(bench, CEILING, [*OURS, *PEERS], topic, count)}


def show(found: dict[str, Any]) -> str:
    """The row as text."""
    rows = []
    for name, one in found["contestants"].items():
        target = TARGETS.get(name)
        ratios = one["ratios"]
        rows.append(
            [
                name,
                cell(one["rate"], ",.0f"),
                cell(one["ratio"], ".2f"),
                f"{min(ratios):.2f} to {max(ratios):.2f}" if ratios else "-",
                cell(one["cpu_us"], ".1f"),
                cell(one["cpu_ratio"], ".2f"),
                f">= {target}" if target else "",
                cell(one.get("pauses_per_10000"), ".2f") if "pauses_per_10000" in one else "",
                "; ".join(one["problems"]) or "none",
            ]
        )
    heads = ["way", "events/s", "ratio", "ratios", "CPU us", "ratio of CPU", "target", "pauses per 10,000", "problems"]
    head = (
        f"{found['count']:,} events, {PARTITIONS} partitions, one process each; ratios to the loop beside it. "
        "`ratio of CPU` is that of the events for each second of the process's CPU time: other load disturbs it less."
    )
    return f"{head}\n\n{table(heads, rows)}"
