"""One record in a hundred cannot be read: what that does to the keys whose records can."""

import subprocess
from typing import Any

from load import BAD, is_poison
from measure import Bench, Contestant
from rows.side_by_side import centiles, figures, records, rise

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
    return {
        "events": total,
        "poison": bad,
        **figures(runs),
    }


def show(found: dict[str, Any]) -> str:
    """The row as text."""
    head = (
        f"{RATE:,} events/s, the 1 % in every second window of {WINDOW:g} s, all of them of {BAD} keys; milliseconds "
        f"from produce() to the handler for the other keys, medians of the windows."
    )
    tail = (
        f"p99 with poison against without: {rise(found)}; target <= {MOST_RISE:+.0%}. {found['poison']:,} of "
        f"{found['events']:,} events were poison; problems: {'; '.join(found['problems']) or 'none'}."
    )
    return f"{head}\n\n{centiles(found, {'no poison': 'without', '1 % poison': 'with'})}\n\n{tail}"
