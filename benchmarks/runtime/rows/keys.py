"""One partition, many keys, handlers that take 0 to 5 ms: concurrency below the partition, the order of keys kept."""

from statistics import median
from typing import Any

from measure import Bench, Contestant, Result, say
from report import cell, table

TITLE = "One partition, the order of each key kept"
COUNT = 10_000
CONCURRENCY = 100
CONTESTANTS = [
    Contestant("offsetzero, async handler", "ours_keys.py", {"way": "async", "concurrency": CONCURRENCY}),
    Contestant("offsetzero, sync handler", "ours_keys.py", {"way": "sync", "concurrency": CONCURRENCY}),
    Contestant("bare asyncio loop, no safe commits", "asyncio_loop.py", {"concurrency": CONCURRENCY}),
    Contestant("pyrallel-consumer", "pyrallel.py", {"way": "wait", "concurrency": CONCURRENCY}, "pyrallel"),
]


def measure(bench: Bench) -> dict[str, Any]:
    """Run the row."""
    count = bench.count(COUNT)
    topic = bench.topic("keys", 1, count)
    return {"count": count, "contestants": in_turn(bench, CONTESTANTS, topic, count)}


def in_turn(bench: Bench, contestants: list[Contestant], topic: str, count: int) -> dict[str, Result]:
    """Medians of each contestant's runs, and the worst of what must not happen."""
    present = bench.present(contestants)
    runs: dict[str, list[Result]] = {one.name: [] for one in present}
    for turn in range(bench.repetitions):
        say(f"turn {turn + 1} of {bench.repetitions}")
        for one in present:
            runs[one.name].append(bench.run(one, topic, count))
    return {name: _summary(found) for name, found in runs.items()}


def _summary(runs: list[Result]) -> Result:
    good = [run for run in runs if "seconds" in run]
    found: Result = {"problems": sorted({problem for run in runs for problem in run["problems"]})}
    for name in ("seconds", "cpu_seconds", "at_once"):
        found[name] = median(run[name] for run in good) if good else None
    for name in ("inversions", "overlaps"):
        found[name] = max((run[name] for run in good), default=None)
    return found


def per_event(one: Result, count: int) -> float | None:
    """Microseconds of CPU time for each event."""
    return one["cpu_seconds"] / count * 1e6 if one["cpu_seconds"] else None


def show(found: dict[str, Any]) -> str:
    """The row as text."""
    rows = [
        [
            name,
            cell(one["seconds"], ".2f"),
            cell(one["inversions"], ",d"),
            cell(one["overlaps"], ",d"),
            cell(one["at_once"], ".0f"),
            cell(per_event(one, found["count"]), ".0f"),
            "<= 1.0" if name.startswith("offsetzero") else "",
            "; ".join(one["problems"]) or "none",
        ]
        for name, one in found["contestants"].items()
    ]
    head = f"{found['count']:,} events of 1,000 keys, 0 to 5 ms each (seeded), {CONCURRENCY} at once; at-least-once."
    heads = ["way", "first to last, s", "inversions", "overlaps", "at once, mean", "CPU us", "target", "problems"]
    return f"{head}\n\n{table(heads, rows)}"
