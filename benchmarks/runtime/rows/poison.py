"""One record in a hundred cannot be read: what that does to the keys whose records can."""

import subprocess
from statistics import median
from typing import Any

from confluent_kafka import Consumer, TopicPartition
from load import BAD, is_poison
from measure import Bench, Contestant
from report import cell, table

TITLE = "1 % poison: the wait of healthy keys"
RATE = 2_000
WINDOW = 2.0
WINDOWS = 22
PARTITIONS = 6
MOST_RISE = 0.10


def measure(bench: Bench) -> dict[str, Any]:
    """Run the row."""
    windows = max(6, bench.count(WINDOWS, 0) // 2 * 2)
    total = round(RATE * WINDOW * windows)
    bad = sum(is_poison(number, RATE, WINDOW) for number in range(total))
    options = {"window": WINDOW, "healthy": BAD}
    contestant = Contestant("offsetzero, single", "ours_poison.py", options)
    runs = []
    for turn in range(bench.repetitions):
        topic = bench.topic(f"poison{turn}", PARTITIONS, 0)
        command = bench.load(topic, RATE, WINDOW, windows, "poison")
        run = bench.run(contestant, topic, total - bad, lambda: subprocess.run(command, check=True))  # noqa: B023
        namespace = topic.removesuffix("documents")
        dead = records(bench.servers.bootstrap, f"{namespace}{run['group']}.dlq", PARTITIONS)
        if dead != bad:
            run["problems"].append(f"{dead:,} dead letters, {bad:,} events were poison")
        runs.append(run)
    good = [run for run in runs if "seconds" in run]
    centiles = [name for name in (good[0] if good else ()) if name.startswith("p") and "with" in name]
    return {
        "events": total,
        "poison": bad,
        **{name: median(run[name] for run in good) for name in centiles},
        "rises": [run["p99_with"] / run["p99_without"] - 1 for run in good],
        "problems": sorted({problem for run in runs for problem in run["problems"]}),
    }


def records(bootstrap: str, topic: str, partitions: int) -> int:
    """How many records a topic holds."""
    client = Consumer({"bootstrap.servers": bootstrap, "group.id": "bench-look"})
    ends = [client.get_watermark_offsets(TopicPartition(topic, one), timeout=10)[1] for one in range(partitions)]
    client.close()
    return sum(ends)


def show(found: dict[str, Any]) -> str:
    """The row as text."""
    rows = [
        [kind, *(cell(found.get(f"p{at}_{name}"), ".1f") for at in (50, 99))]
        for kind, name in (("no poison", "without"), ("1 % poison", "with"))
    ]
    rises = found["rises"]
    rise = f"{median(rises):+.1%} ({min(rises):+.1%} to {max(rises):+.1%})" if rises else "-"
    head = (
        f"{RATE:,} events/s, the 1 % in every second window of {WINDOW:g} s, all of them of {BAD} keys; milliseconds "
        f"from produce() to the handler for the other keys, medians of the windows."
    )
    tail = (
        f"p99 with poison against without: {rise}; target <= {MOST_RISE:+.0%}. {found['poison']:,} of "
        f"{found['events']:,} events were poison; problems: {'; '.join(found['problems']) or 'none'}."
    )
    return f"{head}\n\n{table(['', 'p50', 'p99'], rows)}\n\n{tail}"
