"""The audit of replays (table `replays`), and how fast a group has been."""

from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum
from uuid import UUID

from offsetzero.store.script import Script

DONE = "done"


class Way(StrEnum):
    """How records are read once more."""

    OFFSETS = "offsets"
    """The group was stopped, and got other offsets."""
    LIVE = "live"
    """Its members were told."""
    JOB = "job"
    """A side job reads them, and leaves the group's offsets alone."""


@dataclass(frozen=True, slots=True)
class Replay:
    """One replay. `ended` is None while it is under way, or was interrupted."""

    id: UUID
    group: str
    way: Way
    who: str
    why: str
    asked: str
    """The options, as they were typed."""
    places: str
    """Which offsets of which partitions."""
    records: int
    at: datetime
    ended_at: datetime | None = None
    ended: str | None = None
    generation: int | None = None
    """The one that it has opened, with --force."""


def begin(
    replay_id: UUID,
    group: str,
    way: Way,
    who: str,
    why: str,
    asked: str,
    places: str,
    records: int,
    generation: int | None = None,
) -> Script[None]:
    """Write that a replay begins."""
    yield (
        "INSERT INTO replays (id, group_name, way, who, why, asked, places, records, generation)"
        " VALUES (%s, %s, %s, %s, %s, %s, %s, %s, %s)",
        (replay_id, group, way, who, why, asked, places, records, generation),
    )


def end(replay_id: UUID, how: str = DONE) -> Script[None]:
    """Write that it has ended, and how."""
    yield "UPDATE replays SET ended_at = clock_timestamp(), ended = %s WHERE id = %s", (how, replay_id)


def history(group: str | None = None) -> Script[list[Replay]]:
    """The replays of a group or of all, oldest first."""
    rows = yield (
        "SELECT id, group_name, way, who, why, asked, places, records, at, ended_at, ended, generation FROM replays"
        " WHERE %s::text IS NULL OR group_name = %s ORDER BY at",
        (group, group),
    )
    return [Replay(row[0], row[1], Way(row[2]), *row[3:]) for row in rows]


def busiest_minute(group: str) -> Script[float | None]:
    """The most events a second that a group has ended in one minute of the last 30 days; None when it has ended none.

    Measured in the minutes between its first and its last event in them, so that a short burst is not thinned out.
    """
    rows = yield (
        "SELECT count(*) / greatest(1, extract(epoch FROM max(at) - min(at)))::float8 FROM processed_events"
        " WHERE group_name = %s AND at > now() - interval '30 days' GROUP BY date_trunc('minute', at)"
        " ORDER BY count(*) DESC LIMIT 1",
        (group,),
    )
    return float(rows[0][0]) if rows else None
