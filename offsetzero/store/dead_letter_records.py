"""Writes what dead-letter topics hold into the ledger, and how far it is with each of them."""

from collections.abc import Mapping, Sequence
from dataclasses import astuple, fields
from datetime import datetime
from uuid import UUID

from offsetzero.store.dead_letters import Entry
from offsetzero.store.script import Script

_TYPES = {str: "text", int: "bigint", datetime: "timestamptz", UUID: "uuid"}
_LISTS = ", ".join(
    f"%s::{'text' if one.type == (str | None) else 'uuid' if one.type == (UUID | None) else _TYPES[one.type]}[]"  # type: ignore[index]
    for one in fields(Entry)
)


def add(entries: Sequence[Entry]) -> Script[int]:
    """Write entries; one that is there stays. Returns how many were new."""
    if not entries:
        return 0
    columns = list(zip(*map(astuple, entries), strict=True))
    rows = yield (
        f"INSERT INTO dead_letters SELECT * FROM unnest({_LISTS}) ON CONFLICT DO NOTHING RETURNING 1",  # noqa: S608
        tuple(list(column) for column in columns),
    )
    return len(rows)


def positions(places: Mapping[tuple[str, int], str]) -> Script[dict[tuple[str, int], int]]:
    """How far the ledger is in partitions, by topic id and number; held until the transaction ends.

    Args:
        places: the topic's name for each; one that was never read is at 0.
    """
    keys = sorted(places)
    listed = [[topic_id for topic_id, _ in keys], [number for _, number in keys]]
    yield (
        "INSERT INTO dead_letter_positions (topic_id, partition, topic, position) "
        "SELECT topic_id, partition, topic, 0 FROM unnest(%s::text[], %s::int[], %s::text[]) "
        "AS new (topic_id, partition, topic) ON CONFLICT DO NOTHING",
        (*listed, [places[key] for key in keys]),
    )
    rows = yield (
        "SELECT p.topic_id, p.partition, p.position FROM dead_letter_positions p "
        "JOIN unnest(%s::text[], %s::int[]) AS o (topic_id, partition) USING (topic_id, partition) "
        "ORDER BY p.topic_id, p.partition FOR UPDATE OF p",
        tuple(listed),
    )
    return {(topic_id, partition): position for topic_id, partition, position in rows}


def advance(reached: Mapping[tuple[str, int], int]) -> Script[None]:
    """Write how far the ledger is; in the transaction of what was read, after `positions`."""
    yield (
        "UPDATE dead_letter_positions p SET position = n.position "
        "FROM unnest(%s::text[], %s::int[], %s::bigint[]) AS n (topic_id, partition, position) "
        "WHERE p.topic_id = n.topic_id AND p.partition = n.partition",
        ([topic_id for topic_id, _ in reached], [number for _, number in reached], list(reached.values())),
    )
