"""What rows share that compare windows with failures to windows without, within one run."""

from statistics import median
from typing import Any

from confluent_kafka import Consumer, TopicPartition
from report import cell, table


def figures(runs: list[dict[str, Any]]) -> dict[str, Any]:
    """The medians of the centiles over the runs, how much p99 rises in each, and what was wrong."""
    good = [run for run in runs if "seconds" in run]
    centiles = [name for name in (good[0] if good else ()) if name.startswith("p") and "with" in name]
    return {
        **{name: median(run[name] for run in good) for name in centiles},
        "rises": [run["rise"] for run in good],
        "problems": sorted({problem for run in runs for problem in run["problems"]}),
    }


def centiles(found: dict[str, Any], kinds: dict[str, str]) -> str:
    """The table of both kinds of windows: what is found by each name, as it is shown."""
    rows = [[kind, *(cell(found.get(f"p{at}_{name}"), ".1f") for at in (50, 99))] for kind, name in kinds.items()]
    return table(["", "p50", "p99"], rows)


def rise(found: dict[str, Any]) -> str:
    """How much p99 rises, with its span."""
    rises = found["rises"]
    return f"{median(rises):+.1%} ({min(rises):+.1%} to {max(rises):+.1%})" if rises else "-"


def records(bootstrap: str, topic: str, partitions: int) -> int:
    """How many records a topic holds."""
    client = Consumer({"bootstrap.servers": bootstrap, "group.id": "bench-look"})
    ends = [client.get_watermark_offsets(TopicPartition(topic, one), timeout=10)[1] for one in range(partitions)]
    client.close()
    return sum(ends)
