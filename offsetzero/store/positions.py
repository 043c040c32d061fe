"""How far a projection has read each partition, written in the transactions of its rows (table `group_positions`).

All that lies before a position is safe: its outcome is committed, or its copy is in a retry topic. What lies behind it
and is done all the same, because another record of the partition is not, has its outcome in `processed_events`. So
both, written in one transaction with the effect, tell at any moment exactly what is done.
"""

from collections.abc import Mapping
from dataclasses import dataclass

from offsetzero.generation import Generation
from offsetzero.store.script import Script
from offsetzero.store.starts import Place


@dataclass(frozen=True, slots=True)
class Position:
    """A position in a partition of the topic with this id."""

    topic_id: str
    offset: int


_KEY = "k.group_name = %s AND k.generation = %s"
_GIVEN = "unnest(%s::text[], %s::int[], %s::text[], %s::bigint[]) AS r (topic, partition, topic_id, position)"
_LOCKED = (
    "WITH found AS MATERIALIZED (SELECT k.topic, k.partition, r.position FROM group_positions k JOIN"  # noqa: S608
    f" {_GIVEN} USING (topic, partition, topic_id) WHERE {_KEY} AND k.position < r.position"
    " ORDER BY k.topic, k.partition FOR NO KEY UPDATE OF k{skip})"
    f" UPDATE group_positions k SET position = found.position FROM found WHERE {_KEY}"
    " AND k.topic = found.topic AND k.partition = found.partition"
)
_ADVANCE = _LOCKED.format(skip=" SKIP LOCKED")
_KEEP = _LOCKED.format(skip="")
_INSERT = (
    "INSERT INTO group_positions (group_name, generation, topic, partition, topic_id, position)"  # noqa: S608
    f" SELECT %s, %s, topic, partition, topic_id, position FROM {_GIVEN} ORDER BY topic, partition"
    " ON CONFLICT (group_name, generation, topic, partition) DO "
)


def of_generation(generation: Generation) -> Script[dict[Place, Position]]:
    """All positions of a generation."""
    rows = yield (
        f"SELECT topic, partition, topic_id, position FROM group_positions k WHERE {_KEY}",  # noqa: S608
        (generation.group, generation.number),
    )
    return {(row[0], row[1]): Position(row[2], row[3]) for row in rows}


def add(generation: Generation, positions: Mapping[Place, Position]) -> Script[None]:
    """Write the positions of partitions that have none; those of others stay."""
    yield _INSERT + "NOTHING", (generation.group, generation.number, *_columns(positions))


def replace(generation: Generation, positions: Mapping[Place, Position]) -> Script[None]:
    """Write positions in place of what is there, forwards or back.

    While the generation has no members, or by the member that has the partitions and runs nothing of them.
    """
    update = "UPDATE SET topic_id = EXCLUDED.topic_id, position = EXCLUDED.position"
    yield _INSERT + update, (generation.group, generation.number, *_columns(positions))


def advance(generation: Generation, positions: Mapping[Place, Position]) -> Script[None]:
    """Move positions on, last in the transaction of the rows that they are of.

    One that another transaction is moving is left to those that follow: transactions that handle records of one
    partition must not wait for each other's commit. What is there already is never lowered.
    """
    key = generation.group, generation.number
    yield _ADVANCE, (*_columns(positions), *key, *key)


def keep(generation: Generation, positions: Mapping[Place, Position]) -> Script[None]:
    """The same in a transaction of its own, which waits for others."""
    key = generation.group, generation.number
    yield _KEEP, (*_columns(positions), *key, *key)


def _columns(positions: Mapping[Place, Position]) -> tuple[object, ...]:
    places, values = list(positions), list(positions.values())
    return (
        [topic for topic, _ in places],
        [number for _, number in places],
        [one.topic_id for one in values],
        [one.offset for one in values],
    )
