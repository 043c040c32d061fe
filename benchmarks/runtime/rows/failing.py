"""A tenth of the keys fail and keep their order: what that does to the keys that do not."""

import subprocess
from typing import Any

from load import ALWAYS, SHARE, TROUBLED, fails
from measure import Bench, Contestant
from rows.side_by_side import centiles, figures, records, rise

TITLE = "A tenth of the keys fails: the wait of the others"
RATE = 2_000
WINDOW = 10.0
WINDOWS = 14
PARTITIONS = 6
MOST_RISE = 0.10


def measure(bench: Bench) -> dict[str, Any]:
    """Run the row."""
    windows = max(4, bench.count(WINDOWS, 0) // 2 * 2)
    total = round(RATE * WINDOW * windows)
    each = [fails(number, RATE, WINDOW) for number in range(total)]
    always = each.count(ALWAYS)
    contestant = Contestant("offsetzero, single", "ours_failing.py", {"window": WINDOW, "healthy": TROUBLED})
    runs = []
    for turn in range(bench.repetitions):
        topic = bench.topic(f"failing{turn}", PARTITIONS, 0)
        command = bench.load(topic, RATE, WINDOW, windows, "failing")
        run = bench.run(contestant, topic, total, lambda: subprocess.run(command, check=True), 2 * WINDOW * windows)  # noqa: B023
        runs.append(run)
        if "seconds" not in run:
            continue
        name = f"{topic.removesuffix('documents')}{run['group']}"
        run["appended"] = records(bench.servers.bootstrap, f"{name}.retry-1m", PARTITIONS)
        if (dead := records(bench.servers.bootstrap, f"{name}.dlq", PARTITIONS)) != always:
            run["problems"].append(f"{dead:,} dead letters, {always:,} events always fail")
    return {
        "events": total,
        "failing": total - each.count(0),
        "always": always,
        "appended": max(run.get("appended", 0) for run in runs),
        **figures(runs),
    }


def show(found: dict[str, Any]) -> str:
    """The row as text."""
    head = (
        f"{RATE:,} events/s of 1,000 keys; in every second window of {WINDOW:g} s {SHARE:.0%} of the events of "
        f"{TROUBLED} keys fail once, twice or always, with tiers of 0.5 s and 1 s. Milliseconds from produce() to the "
        "handler for the other keys, medians of the windows; the last lines are the part of it within the member, from "
        "the end of a fetch on."
    )
    tail = (
        "p99 with failures against the windows without beside it: "
        f"{rise(found)}; target <= {MOST_RISE:+.0%}. Of {found['events']:,} events "
        f"{found['failing']:,} fail ({found['always']:,} always); {found['appended']:,} were appended to the first "
        f"tier, parked or failed; problems (inversions among them): {'; '.join(found['problems']) or 'none'}."
    )
    kinds = {
        "no failures": "without",
        "failures": "with",
        "no failures, within the member": "inside_without",
        "failures, within the member": "inside_with",
    }
    return f"{head}\n\n{centiles(found, kinds)}\n\n{tail}"
