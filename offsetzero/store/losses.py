"""Which events one generation has and another has not: asked of outcomes, and of a table of what waits.

What waits is in retry topics. It is noted in a temporary table, so that one statement tells all, whatever its amount.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

from offsetzero.generation import Generation
from offsetzero.store import generations
from offsetzero.store.script import Script

WAITING = "waiting"
DECIDED = "applied before an operator's decision"


@dataclass(frozen=True, slots=True)
class Lost:
    """An event that is in the one generation and not, or not so, in the other.

    Attributes:
        key: of its record, as text; None for one without, or where it is not known any more.
        source: of the event.
        event_id: unique with its source.
        state: there: `waiting` in a retry topic, `dead-lettered`, `failed`, or that it was applied as it was before an
            operator edited or discarded it.
    """

    key: str | None
    source: str
    event_id: str
    state: str

    def __str__(self) -> str:
        return f"key {self.key if self.key is not None else '-'}: event {self.event_id} of {self.source} {self.state}"


class Copy(NamedTuple):
    """A record of a retry topic: where it is, whose outcome is to tell whether it is done, and when it is due."""

    topic: str
    partition: int
    place: int
    source: str
    event_id: str
    redrive_no: int
    key: str | None
    due_ms: int


_TABLE = (
    "CREATE TEMPORARY TABLE rebuild_copies (topic text, partition int, place bigint, source text, event_id text,"
    " redrive_no int, key text, due_ms bigint)"
)
_NOTE = (
    "INSERT INTO pg_temp.rebuild_copies SELECT * FROM unnest(%s::text[], %s::int[], %s::bigint[], %s::text[],"
    " %s::text[], %s::int[], %s::text[], %s::bigint[])"
)
_WAITING = (
    "SELECT min(c.key), c.source, c.event_id, count(*) OVER (), max(max(c.due_ms)) OVER ()"
    " FROM pg_temp.rebuild_copies c LEFT JOIN group_positions k ON k.group_name = %s AND k.generation = %s"
    " AND k.topic = c.topic AND k.partition = c.partition WHERE c.place >= coalesce(k.position, 0)"
    " AND NOT EXISTS (SELECT FROM processed_events e WHERE e.group_name = %s AND e.generation = %s"
    " AND e.source = c.source AND e.event_id = c.event_id AND (e.redrive_no >= c.redrive_no"
    " OR e.redrive_no = c.redrive_no - 1 AND e.outcome <> 'dead-lettered'))"  # as in `processed.ended`
    " AND EXISTS (SELECT FROM processed_events o WHERE o.group_name = %s AND o.generation = %s"
    " AND o.source = c.source AND o.event_id = c.event_id AND o.outcome = 'applied')"
    " GROUP BY c.source, c.event_id ORDER BY 1, 2, 3 LIMIT %s"
)
_FAILED = (
    "SELECT m.source, m.event_id, m.outcome, count(*) OVER () FROM processed_events m WHERE m.group_name = %s"
    " AND m.generation = %s AND m.outcome IN ('failed', 'dead-lettered')"
    " AND EXISTS (SELECT FROM processed_events o WHERE o.group_name = m.group_name AND o.generation = %s"
    " AND o.source = m.source AND o.event_id = m.event_id AND o.outcome = 'applied')"
    " AND NOT EXISTS (SELECT FROM processed_events l WHERE l.group_name = m.group_name"
    " AND l.generation = m.generation AND l.source = m.source AND l.event_id = m.event_id"
    " AND l.redrive_no > m.redrive_no) ORDER BY m.at, m.source, m.event_id LIMIT %s"
)
# By the event's first outcome: one that was redriven carries its edit. Of a discard only `discarded` is right.
_DECIDED = (
    "SELECT min(d.key), n.source, n.event_id, count(*) OVER () FROM dead_letters d"
    " JOIN (SELECT topic_id, partition, place, action_id FROM dead_letter_edits UNION ALL"
    " SELECT topic_id, partition, place, action_id FROM dead_letter_decisions) w USING (topic_id, partition, place)"
    " JOIN dead_letter_actions a ON a.id = w.action_id AND a.kind <> 'redrive'"
    " JOIN processed_events n ON n.group_name = %s AND n.generation = %s AND n.source = d.source"
    " AND n.event_id = d.event_id AND n.redrive_no = 0 AND n.outcome = 'applied'"
    " WHERE d.group_name = ANY (%s) AND (a.kind = 'discard' OR n.at < a.at)"
    " GROUP BY n.source, n.event_id ORDER BY 1, 2, 3 LIMIT %s"
)


@dataclass(frozen=True, slots=True)
class Losses:
    """What would be lost.

    Attributes:
        events: the first of them.
        count: of all.
        due_ms: when the last of those that wait is to be tried again, since 1970; None when there are others, which no
            time brings.
    """

    events: Sequence[Lost] = ()
    count: int = 0
    due_ms: int | None = None


def begin() -> Script[None]:
    """Make the table of what waits, empty; it ends with the connection."""
    yield "DROP TABLE IF EXISTS pg_temp.rebuild_copies", ()
    yield _TABLE, ()


def note(copies: Sequence[Copy]) -> Script[None]:
    """Note records of retry topics."""
    yield _NOTE, tuple([copy[part] for copy in copies] for part in range(len(Copy._fields)))


def find(old: Generation, new: Generation, most: int) -> Script[Losses]:
    """What `old` has applied, and waits, is dead or has failed in `new`; or is there as it was before it was amended.

    Args:
        old: the one that is read.
        new: the one that is to be.
        most: events of each kind that are named.
    """
    of_old, of_new = (old.group, old.number), (new.group, new.number)
    waits = yield _WAITING, (*of_new, *of_new, *of_old, most)
    failed = yield _FAILED, (*of_new, old.number, most)
    decided = yield _DECIDED, (*of_new, (yield from generations.names(new.group)), most)
    events = [Lost(row[0], row[1], row[2], WAITING) for row in waits]
    events += [Lost(None, row[0], row[1], row[2]) for row in failed]
    events += [Lost(row[0], row[1], row[2], DECIDED) for row in decided]
    count = sum(rows[0][3] for rows in (waits, failed, decided) if rows)
    return Losses(events, count, waits[0][4] if waits and not failed and not decided else None)
