"""The audit of switches between generations (table `group_switches`), and what they would change for readers."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from uuid import UUID

from offsetzero.generation import Generation
from offsetzero.store.positions import Position
from offsetzero.store.script import Script, Statement, in_parts
from offsetzero.store.starts import Place


@dataclass(frozen=True, slots=True)
class Switch:
    """Who had another generation read, and why. `accepted` events are in the old one, and not in the new one."""

    id: UUID
    group: str
    old: int
    new: int
    who: str
    why: str
    accepted: int


_WORSE = (
    "SELECT m.source, m.event_id, m.outcome FROM processed_events m WHERE m.group_name = %s"
    " AND m.generation = %s AND m.outcome IN ('failed', 'dead-lettered')"
    " AND EXISTS (SELECT FROM processed_events n WHERE n.group_name = m.group_name AND n.generation = %s"
    " AND n.source = m.source AND n.event_id = m.event_id AND n.outcome = 'applied')"
    " AND NOT EXISTS (SELECT FROM processed_events l WHERE l.group_name = m.group_name"
    " AND l.generation = m.generation AND l.source = m.source AND l.event_id = m.event_id"
    " AND l.redrive_no > m.redrive_no) ORDER BY m.at, m.source, m.event_id"
)
_APPLIED = (
    "SELECT DISTINCT e.source, e.event_id FROM unnest(%s::text[], %s::text[]) AS e (source, event_id)"
    " JOIN processed_events p ON p.group_name = %s AND p.generation = %s AND p.source = e.source"
    " AND p.event_id = e.event_id AND p.outcome = 'applied'"
)


def add(switch: Switch, positions: Mapping[Place, Position]) -> Script[None]:
    """Write it down, with where the old one was, in the transaction that moves the pointer."""
    at = {f"{topic}/{number}": one.offset for (topic, number), one in sorted(positions.items())}
    yield (
        "INSERT INTO group_switches (id, group_name, from_generation, to_generation, who, why, accepted, positions)"
        " VALUES (%s, %s, %s, %s, %s, %s, %s, %s::jsonb)",
        (switch.id, switch.group, switch.old, switch.new, switch.who, switch.why, switch.accepted, json.dumps(at)),
    )


def before(group: str) -> Script[int | None]:
    """The generation that was read before the last switch."""
    rows = yield (
        "SELECT from_generation FROM group_switches WHERE group_name = %s ORDER BY at DESC, id DESC LIMIT 1",
        (group,),
    )
    return int(rows[0][0]) if rows else None


def failed_only_in(new: Generation, old: int) -> Script[list[tuple[str, str, str]]]:
    """Events that one generation has applied, and that have failed in another: source, event id, the outcome there."""
    rows = yield _WORSE, (new.group, new.number, old)
    return [(row[0], row[1], row[2]) for row in rows]


def applied(generation: Generation, events: Sequence[tuple[str, str]]) -> Script[set[tuple[str, str]]]:
    """Those of the events (source, id) that a generation has applied."""

    def ask(some: Sequence[tuple[str, str]]) -> Statement:
        columns = [one[0] for one in some], [one[1] for one in some]
        return _APPLIED, (*columns, generation.group, generation.number)

    rows = yield from in_parts(events, ask)
    return {(row[0], row[1]) for row in rows}
