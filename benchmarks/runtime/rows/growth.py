"""A long log into a generation of the catalogue: time must grow with it, and memory must not."""

from collections.abc import Sequence
from itertools import pairwise
from statistics import median
from typing import Any

from measure import Bench, rate
from report import cell, table
from rows.rebuild import OURS, PARTITIONS

TITLE = "A rebuild of a long log: time and memory"
LEAST = 100_000
FLAT = 1.05
LINEAR = 1.1
SECONDS = 1_200.0  # with the writing of the log, and the count of what is there, a run of 25 minutes at most
WARM = 0.1  # of the events: members start one after the other, and their memory fills


def measure(bench: Bench) -> dict[str, Any]:
    """Run the row, once: its length is its repetition."""
    count = bench.events
    topic = bench.documents("growth", PARTITIONS, count)
    ours = OURS.with_options(seconds=SECONDS)
    result = bench.run(ours, topic, count, seconds=SECONDS + 900, told=True)
    return found(result, count)


def found(result: dict[str, Any], count: int) -> dict[str, Any]:
    """What a run says, by tenths of the events."""
    reached = [(done, at) for at, done in result.get("reached", [])]
    held = [(done, mib) for done, mib, _ in result.get("held", [])]
    used = [(0, 0.0), *((done, cpu) for done, _, cpu in result.get("held", []))]
    sizes = [size for size in (LEAST * 10**power for power in range(9)) if size < count] + [count]
    tenths = [(count * tenth // 10, count * (tenth + 1) // 10) for tenth in range(10)]
    mib = [[mib for done, mib in held if begin <= min(done, count - 1) < end] for begin, end in tenths]
    first, middle = int(count * WARM), int(count * (1 + WARM) / 2)
    return {
        "count": count,
        "rate": rate(result) if "seconds" in result else None,
        "seconds": [[size, when(reached, size)] for size in sizes],
        "index": result.get("index_seconds"),
        "tenths": [median(found) if found else None for found in mib],
        "rates": [one_in(pace(reached, begin, end)) for begin, end in tenths],
        "cpu": [per_event(used, begin, end) for begin, end in tenths],
        "halves": [
            [per_event(used, first, middle), per_event(used, middle, count)],
            [one_in(pace(reached, first, middle)), one_in(pace(reached, middle, count))],
        ],
        "problems": result["problems"],
    }


def when(reached: Sequence[tuple[int, float]], done: int) -> float | None:
    """Seconds from the first event to that many; of whatever grows with them, how much."""
    for (before, then), (after, now) in pairwise(reached):
        if before <= done <= after and after > before:
            return then + (now - then) * (done - before) / (after - before) - reached[0][1]
    return None


def pace(reached: Sequence[tuple[int, float]], begin: int, end: int) -> float | None:
    """Seconds for an event, between two counts of them; or whatever grows with them."""
    one, other = when(reached, begin), when(reached, end)
    return (other - one) / (end - begin) if one is not None and other is not None and end > begin else None


def one_in(seconds: float | None) -> float | None:
    """Events a second."""
    return 1 / seconds if seconds else None


def per_event(used: Sequence[tuple[int, float]], begin: int, end: int) -> float | None:
    """Microseconds of CPU time an event."""
    return seconds * 1e6 if (seconds := pace(used, begin, end)) is not None else None


def show(found: dict[str, Any]) -> str:
    """The row as text."""
    times = "; ".join(f"{size:,} events in {cell(seconds, ',.1f')} s" for size, seconds in found["seconds"])
    rows = [
        ["events/s", *(cell(one, ",.0f") for one in found["rates"])],
        ["CPU us", *(cell(one, ",.1f") for one in found["cpu"])],
        ["MiB", *(cell(one, ",.0f") for one in found["tenths"])],
    ]
    index = cell(found["index"], ",.1f")
    text = (
        f"{times}; {index} s more for the indexes that are made then: {cell(found['rate'], ',.0f')} a second in all; "
        f"problems: {'; '.join(found['problems']) or 'none'}.\n\n"
        f"{_linear(found)}\n{_flat(found)}\n\n"
        "By tenths: the rate; the CPU time of an event, of members and PostgreSQL; the resident memory of the larger "
        "member (median)."
    )
    heads = ["after", *(f"{tenth * 10} %" for tenth in range(1, 11))]
    return f"{text}\n\n{table(heads, rows)}"


def _linear(found: dict[str, Any]) -> str:
    """By the CPU time, which says how much there is to do, whatever else the machine does."""
    (first, second), (early, late) = found["halves"]
    growth = second / first if first and second else None
    said = "not measured" if growth is None else "yes" if growth <= LINEAR else "NO"
    share = late / early if early and late else None
    return (
        f"Linear: {said}. Behind the first tenth, an event of the later half takes {cell(growth, '.2f')} times the CPU "
        f"time of one of the earlier half (linear: <= {LINEAR}), at {cell(share, '.2f')} times its pace."
    )


def _flat(found: dict[str, Any]) -> str:
    first, end = found["tenths"][1], found["tenths"][9]
    growth = end / first if first and end else None
    said = "not measured" if growth is None else "yes" if growth <= FLAT else "NO"
    return f"Flat: {said}. The last tenth holds {cell(growth, '.2f')} times what the second did (flat: <= {FLAT})."
