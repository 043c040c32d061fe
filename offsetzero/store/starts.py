"""Where a consumer group began in each partition: the proof that it is not new there (table `group_starts`)."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import TypeAlias

from offsetzero.store.script import Script

Place: TypeAlias = tuple[str, int]
"""A topic, as the catalogue names it, and a partition."""


@dataclass(frozen=True, slots=True)
class Start:
    """Where a group began in a partition.

    Attributes:
        topic_id: of the topic then.
        offset: the first one that it read, or will read.
        committed: whether Kafka has held a committed offset since; before that, none there says nothing.
        stay: of the member that has read it last; None when there was none yet.
    """

    topic_id: str
    offset: int
    committed: bool
    stay: str | None = None


_SELECT = "SELECT topic, partition, topic_id, start_offset, committed_at, stay FROM group_starts WHERE group_name = %s"
_INSERT = (
    "INSERT INTO group_starts (group_name, topic, partition, topic_id, start_offset, committed_at)"
    " SELECT %s, topic, partition, topic_id, start_offset, CASE WHEN committed THEN now() END"
    " FROM unnest(%s::text[], %s::int[], %s::text[], %s::bigint[], %s::bool[])"
    " AS new (topic, partition, topic_id, start_offset, committed) ORDER BY topic, partition"
)
_KEEP = " ON CONFLICT DO NOTHING"
_REPLACE = (
    " ON CONFLICT (group_name, topic, partition) DO UPDATE SET topic_id = EXCLUDED.topic_id, at = now(),"
    " start_offset = EXCLUDED.start_offset, committed_at = EXCLUDED.committed_at, stay = NULL"
)
_CONFIRM = (
    "UPDATE group_starts SET committed_at = now() FROM unnest(%s::text[], %s::int[]) AS done (topic, partition)"
    " WHERE group_name = %s AND group_starts.topic = done.topic AND group_starts.partition = done.partition"
    " AND committed_at IS NULL"
)
_ENTER = (
    "UPDATE group_starts SET stay = %s FROM unnest(%s::text[], %s::int[]) AS begun (topic, partition)"
    " WHERE group_name = %s AND group_starts.topic = begun.topic AND group_starts.partition = begun.partition"
)


def of_group(group: str) -> Script[dict[Place, Start]]:
    """All that is recorded of a group."""
    rows = yield _SELECT, (group,)
    return {(row[0], row[1]): Start(row[2], row[3], row[4] is not None, row[5]) for row in rows}


def add(group: str, starts: Mapping[Place, Start]) -> Script[None]:
    """Record starts; what another member has recorded meanwhile stays."""
    yield _INSERT + _KEEP, _columns(group, starts)


def replace(group: str, starts: Mapping[Place, Start]) -> Script[None]:
    """Record starts in place of what is there."""
    yield _INSERT + _REPLACE, _columns(group, starts)


def confirm(group: str, places: Iterable[Place]) -> Script[None]:
    """Record that Kafka holds a committed offset of these."""
    listed = list(places)
    yield _CONFIRM, ([topic for topic, _ in listed], [number for _, number in listed], group)


def enter(group: str, places: Iterable[Place], stay: str) -> Script[None]:
    """Record that a member begins to read these: until it says that it has left them, it may have died with them."""
    listed = list(places)
    yield _ENTER, (stay, [topic for topic, _ in listed], [number for _, number in listed], group)


def _columns(group: str, starts: Mapping[Place, Start]) -> tuple[object, ...]:
    places, values = list(starts), list(starts.values())
    return (
        group,
        [topic for topic, _ in places],
        [number for _, number in places],
        [one.topic_id for one in values],
        [one.offset for one in values],
        [one.committed for one in values],
    )
