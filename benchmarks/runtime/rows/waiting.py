"""Handlers that wait 100 ms for something elsewhere: how many wait at once, and what bounds them."""

from typing import Any

from measure import Bench, Contestant
from report import cell, table
from rows.keys import in_turn, per_event

TITLE = "Handlers that wait 100 ms"
COUNT = 50_000
PAUSE = 0.1
KEYS = CONCURRENCY = 1_000
TARGET = 5_200
_OPTIONS = {"pause": PAUSE, "concurrency": CONCURRENCY}
CONTESTANTS = [
    Contestant("offsetzero, async handler", "ours_keys.py", {"way": "async", **_OPTIONS}),
    Contestant("bare asyncio loop, no safe commits", "asyncio_loop.py", _OPTIONS),
    Contestant("pyrallel-consumer", "pyrallel.py", {"way": "wait", **_OPTIONS}, "pyrallel", most=10_000),
]


def measure(bench: Bench) -> dict[str, Any]:
    """Run the row."""
    count = bench.count(COUNT, 5_000)
    topic = bench.topic("waiting", 1, count)
    found = in_turn(bench, CONTESTANTS, topic, count)
    for contestant in CONTESTANTS:
        if contestant.name in found:
            found[contestant.name]["count"] = min(count, contestant.most or count)
    return {"count": count, "contestants": found}


def show(found: dict[str, Any]) -> str:
    """The row as text."""
    rows = []
    for name, one in found["contestants"].items():
        rate = one["count"] / one["seconds"] if one["seconds"] else None
        rows.append(
            [
                name,
                cell(rate, ",.0f"),
                cell(one["at_once"], ".0f"),
                cell(per_event(one, one["count"]), ".0f"),
                _bound(one),
                cell(one["inversions"], ",d"),
                cell(one["overlaps"], ",d"),
                f">= {TARGET:,}" if name.startswith("offsetzero") else "",
                "; ".join(one["problems"]) or "none",
            ]
        )
    most = CONCURRENCY / PAUSE
    head = (
        f"{found['count']:,} events of {KEYS:,} keys in one partition, {PAUSE * 1000:.0f} ms each, concurrency "
        f"{CONCURRENCY:,}: {most:,.0f} a second is the most that the keys allow."
    )
    heads = ["way", "events/s", "at once, mean", "CPU us", "bound", "inversions", "overlaps", "target", "problems"]
    return f"{head}\n\n{table(heads, rows)}"


def _bound(one: dict[str, Any]) -> str:
    """What kept it from more: the keys when nearly all were at work, else the processor, else its own limits."""
    if not one["seconds"]:
        return "-"
    cores = one["cpu_seconds"] / one["seconds"]
    if one["at_once"] >= 0.9 * min(KEYS, CONCURRENCY):
        return "keys"
    return f"{'one core' if cores >= 0.8 else 'its own limits'} ({cores:.2f} cores used)"
