"""What is counted of an event, in which window; all decisions of the group, without Faust and without I/O."""

from collections.abc import Iterable, Mapping
from datetime import datetime
from typing import Any, Literal, NamedTuple, TypeAlias
from uuid import UUID

from offsetzero.schemas.documents import DocumentDeleted, DocumentUploaded
from offsetzero.schemas.event import Event
from offsetzero.schemas.runs import RunCancelled, RunFailed, RunSucceeded

Cell: TypeAlias = Mapping[str, Any]
"""The counts of one window by their names, and under `at` the offset of the last event counted, by topic."""
Count: TypeAlias = Literal["uploaded", "bytes", "deleted", "succeeded", "failed", "cancelled", "timed", "seconds"]
COUNTS: tuple[Count, ...] = ("uploaded", "bytes", "deleted", "succeeded", "failed", "cancelled", "timed", "seconds")
LONGEST = "longest"
_RECENT_SECONDS = 300.0
_RUNS: Mapping[type[Event], Count] = {RunSucceeded: "succeeded", RunFailed: "failed", RunCancelled: "cancelled"}


class Key(NamedTuple):
    """Of a cell. The partition is in it, so that a tenant whose events are in several needs no topic in between.

    A table's changelog has the partitions of its sources, and a cell is kept in the one that its events came from.
    """

    partition: int
    tenant: str
    start: int
    """Of the window, in seconds since 1970."""


class Fact(NamedTuple):
    """What one event adds to a window."""

    tenant: str
    at: float
    """When it happened, in seconds since 1970: in the event's own words, not when it was read."""
    counts: Mapping[Count, float]


def fact_of(event: Event) -> Fact | None:
    """What an event adds; None when it is of a type that is not counted."""
    if isinstance(event, DocumentUploaded):
        counts: dict[Count, float] = {"uploaded": 1, "bytes": event.size_bytes}
        return Fact(event.tenant_id, event.uploaded_at.timestamp(), counts)
    if isinstance(event, DocumentDeleted):
        return Fact(event.tenant_id, event.deleted_at.timestamp(), {"deleted": 1})
    for kind, name in _RUNS.items():
        if isinstance(event, kind):
            assert isinstance(event, RunSucceeded | RunFailed | RunCancelled)  # noqa: S101 - for the type checker
            counts = {name: 1}
            seconds = _seconds(event.run_id, event.finished_at)
            if seconds is not None:
                counts |= {"timed": 1, "seconds": seconds}
            return Fact(event.tenant_id, event.finished_at.timestamp(), counts)
    return None


def _seconds(run_id: UUID, finished_at: datetime) -> float | None:
    """From the acceptance of the document, which a run id of version 7 (RFC 9562) tells, to the end of its run."""
    if run_id.version != 7:
        return None
    return max(0.0, round(finished_at.timestamp() - (run_id.int >> 80) / 1000, 3))


def start_of(at: float, window: int) -> int:
    """The start of the window, `window` seconds long, that a time falls into."""
    return int(at // window) * window


def is_kept(start: int, now: float, keep: int, window: int) -> bool:
    """Whether a window is shown: it ended less than `keep` seconds ago, and is not of a clock far ahead of ours."""
    return now - keep < start + window and start <= now + keep


def added(cell: Cell | None, fact: Fact, topic: str, offset: int) -> Cell | None:
    """The cell with one event more; None when the event is in it already.

    Faust counts at least once: what was read after its last commit is read again after a crash, while the changelog
    may hold the counts of it. Of one partition of a topic events come in the order of offsets, so the cell knows.

    Args:
        cell: as it was; None for a new one. It is not changed.
        fact: of the event.
        topic: that it was read from.
        offset: of the event.
    """
    seen: Mapping[str, int] = cell["at"] if cell is not None else {}
    if offset <= seen.get(topic, -1):
        return None
    more: dict[str, Any] = dict(cell or {})
    for name, value in fact.counts.items():
        more[name] = round(more.get(name, 0) + value, 3)
    if "seconds" in fact.counts:
        more[LONGEST] = max(more.get(LONGEST, 0), fact.counts["seconds"])
    more["at"] = {**seen, topic: offset}
    return more


def total(cells: Iterable[Cell]) -> dict[str, Any]:
    """The sum of cells, every count named."""
    found: dict[str, Any] = {**dict.fromkeys(COUNTS, 0), LONGEST: 0}
    for cell in cells:
        for name in COUNTS:
            found[name] = round(found[name] + cell.get(name, 0), 3)
        found[LONGEST] = max(found[LONGEST], cell.get(LONGEST, 0))
    return found


def recent(cells: Iterable[tuple[Key, Cell]], now: float, window: int) -> dict[str, dict[str, Any]]:
    """By tenant, the sum of the whole windows of the last five minutes, at least of the last one."""
    end = start_of(now, window)
    begin = end - max(1, int(_RECENT_SECONDS // window)) * window
    by_tenant: dict[str, list[Cell]] = {}
    for key, cell in cells:
        if begin <= key.start < end:
            by_tenant.setdefault(key.tenant, []).append(cell)
    return {tenant: total(found) for tenant, found in by_tenant.items()}
