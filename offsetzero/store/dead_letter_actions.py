"""What operators do about dead letters: each action is written before it begins, with who, why and on which."""

from collections.abc import Sequence
from dataclasses import dataclass, fields
from datetime import datetime
from enum import StrEnum
from uuid import UUID

from offsetzero.generation import Generation
from offsetzero.store.dead_letter_status import of_its_event
from offsetzero.store.dead_letters import COLUMNS, FROM, Entry, Filter, Place
from offsetzero.store.script import Script

DONE = "done"
"""How an action ended that was carried out on all that it was begun for."""


class Kind(StrEnum):
    """What an operator does."""

    REDRIVE = "redrive"
    DISCARD = "discard"
    EDIT = "edit"


@dataclass(frozen=True, slots=True)
class Action:
    """One action. `ended` is None while it is under way, or was interrupted."""

    id: UUID
    kind: Kind
    group: str
    who: str
    why: str
    chosen: str
    at: datetime
    ended_at: datetime | None
    ended: str | None
    letters: int
    """How many dead letters it was begun for."""
    done: int
    """How many of them it was carried out on."""


@dataclass(frozen=True, slots=True)
class Planned:
    """One dead letter of an action that is not carried out yet. `edited` is what an operator made of its payload."""

    number: int
    entry: Entry
    edited: bytes | None


def begin(action_id: UUID, kind: Kind, group: str, who: str, why: str, chosen: str) -> Script[None]:
    """Write an action."""
    yield (
        "INSERT INTO dead_letter_actions (id, kind, group_name, who, why, chosen) VALUES (%s, %s, %s, %s, %s, %s)",
        (action_id, kind, group, who, why, chosen),
    )


def decide(action_id: UUID, which: Filter) -> Script[int]:
    """Take the dead letters that are meant and that no action has taken; returns how many.

    They are numbered so that those of a key are in the order of their origins: within a partition by its offsets.
    """
    where, parameters = which.where()
    rows = yield (
        "WITH taken AS (INSERT INTO dead_letter_decisions (topic_id, partition, place, action_id, number) "  # noqa: S608
        "SELECT l.topic_id, l.partition, l.place, %s, row_number() OVER "
        "(ORDER BY l.origin_offset, l.origin_topic_id, l.origin_partition, l.redrive_no, l.place)"
        f"{FROM} WHERE d.topic_id IS NULL AND {where} ON CONFLICT DO NOTHING RETURNING 1) SELECT count(*) FROM taken",
        (action_id, *parameters),
    )
    return int(rows[0][0])


def planned(action_id: UUID, after: int, limit: int) -> Script[list[Planned]]:
    """The next dead letters of an action that it is still to be carried out on, in order.

    Args:
        after: the number of the last one that the caller has.
    """
    rows = yield (
        f"SELECT d.number, {COLUMNS}, e.edited FROM dead_letter_decisions d "  # noqa: S608
        "JOIN dead_letters l USING (topic_id, partition, place) "
        "LEFT JOIN LATERAL (SELECT edited FROM dead_letter_edits e JOIN dead_letter_actions a ON a.id = e.action_id "
        "WHERE e.topic_id = l.topic_id AND e.partition = l.partition AND e.place = l.place ORDER BY a.at DESC LIMIT 1"
        ") e ON true WHERE d.action_id = %s AND d.number > %s AND d.done_at IS NULL ORDER BY d.number LIMIT %s",
        (action_id, after, limit),
    )
    size = len(fields(Entry))
    return [Planned(row[0], Entry(*row[1 : size + 1]), row[size + 1]) for row in rows]


def done(action_id: UUID, numbers: Sequence[int]) -> Script[None]:
    """Write that an action was carried out on these."""
    yield (
        "UPDATE dead_letter_decisions SET done_at = clock_timestamp() WHERE action_id = %s AND number = ANY (%s)",
        (action_id, list(numbers)),
    )


def held(action: Action) -> Script[dict[int, bytes]]:
    """The dead letters of an action that hold up their keys, by their numbers: the keys (table `holds`)."""
    generation = Generation.named(action.group)
    rows = yield (
        "SELECT d.number, h.key FROM dead_letter_decisions d "
        "JOIN dead_letters l USING (topic_id, partition, place) "
        "JOIN holds h ON h.group_name = %s AND h.generation = %s AND h.topic_id = l.origin_topic_id "
        "AND h.partition = l.origin_partition AND h.origin = l.origin_offset AND h.redrive_no = l.redrive_no "
        "WHERE d.action_id = %s AND d.done_at IS NULL",
        (generation.group, generation.number, action.id),
    )
    return dict(rows)


def release(action_id: UUID, numbers: Sequence[int] | None = None) -> Script[int]:
    """Give back what an action was not carried out on, all of it or these; returns how many are open again."""
    rows = yield (
        "WITH freed AS (DELETE FROM dead_letter_decisions WHERE action_id = %s AND done_at IS NULL "
        "AND (%s::int[] IS NULL OR number = ANY (%s)) RETURNING 1) SELECT count(*) FROM freed",
        (action_id, numbers, numbers),
    )
    return int(rows[0][0])


def end(action_id: UUID, how: str = DONE) -> Script[None]:
    """Write that an action has ended, and how."""
    yield (
        "UPDATE dead_letter_actions SET ended_at = clock_timestamp(), ended = %s WHERE id = %s",
        (how, action_id),
    )


def edit(action_id: UUID, place: Place, original: bytes | None, edited: bytes) -> Script[None]:
    """Write what an operator has made of a payload, with the payload as it was."""
    yield (
        "INSERT INTO dead_letter_edits (action_id, topic_id, partition, place, original, edited) "
        "VALUES (%s, %s, %s, %s, %s, %s)",
        (action_id, *place, original, edited),
    )


def edited(place: Place) -> Script[bytes | None]:
    """What operators have made of a payload; None when they have not touched it."""
    rows = yield (
        "SELECT e.edited FROM dead_letter_edits e JOIN dead_letter_actions a ON a.id = e.action_id "
        "WHERE e.topic_id = %s AND e.partition = %s AND e.place = %s ORDER BY a.at DESC LIMIT 1",
        tuple(place),
    )
    return rows[0][0] if rows else None


def edited_of(places: Sequence[Place]) -> Script[dict[Place, bytes]]:
    """What operators have made of payloads, of those that they have touched."""
    rows = yield (
        "SELECT DISTINCT ON (topic_id, partition, place) e.topic_id, e.partition, e.place, e.edited "
        "FROM unnest(%s::text[], %s::int[], %s::bigint[]) AS w (topic_id, partition, place) "
        "JOIN dead_letter_edits e USING (topic_id, partition, place) "
        "JOIN dead_letter_actions a ON a.id = e.action_id ORDER BY topic_id, partition, place, a.at DESC",
        tuple([place[part] for place in places] for part in range(3)),
    )
    return {Place(*row[:3]): row[3] for row in rows}


_ACTIONS = (
    "SELECT a.id, a.kind, a.group_name, a.who, a.why, a.chosen, a.at, a.ended_at, a.ended, n.letters, n.done "
    "FROM dead_letter_actions a LEFT JOIN LATERAL (SELECT count(*) AS letters, count(done_at) AS done FROM ("
    "SELECT done_at FROM dead_letter_decisions WHERE action_id = a.id "
    "UNION ALL SELECT a.at FROM dead_letter_edits WHERE action_id = a.id) of_it) n ON true "
)


def find(action_id: UUID) -> Script[Action | None]:
    """An action by its id."""
    rows = yield _ACTIONS + "WHERE a.id = %s", (action_id,)
    return _action(rows[0]) if rows else None


def history(group: str | None = None, *, limit: int | None = None, unfinished: bool = False) -> Script[list[Action]]:
    """The actions on a group's dead letters or on all, oldest first; of many the newest `limit`.

    Args:
        unfinished: only those that have not ended.
    """
    rows = yield (
        _ACTIONS + "WHERE (%s::text IS NULL OR a.group_name = %s) AND (NOT %s OR a.ended IS NULL) "
        "ORDER BY a.at DESC LIMIT %s",
        (group, group, unfinished, limit),
    )
    return [_action(row) for row in reversed(rows)]


def first_done(action_id: UUID, limit: int) -> Script[list[int]]:
    """The numbers of the first dead letters that an action was carried out on, at most `limit`."""
    rows = yield (
        "SELECT number FROM dead_letter_decisions WHERE action_id = %s AND done_at IS NOT NULL "
        "ORDER BY number LIMIT %s",
        (action_id, limit),
    )
    return [number for (number,) in rows]


def outcomes(action_id: UUID, numbers: Sequence[int]) -> Script[dict[str, int]]:
    """How the events of redriven dead letters have ended so far: the count of each outcome.

    Of those that had ended when it was their turn, and were not sent, too.
    """
    rows = yield (
        "SELECT outcome, count(*) FROM (SELECT DISTINCT ON (d.number) p.outcome FROM dead_letter_decisions d "  # noqa: S608
        "JOIN dead_letters l USING (topic_id, partition, place) "
        f"JOIN processed_events p ON {of_its_event('p')} AND p.source = l.source "
        "AND p.event_id = l.event_id AND p.redrive_no BETWEEN l.redrive_no AND l.redrive_no + 1 "
        "AND (p.redrive_no > l.redrive_no OR p.outcome <> 'dead-lettered') "
        "WHERE d.action_id = %s AND d.number = ANY (%s) ORDER BY d.number, p.redrive_no DESC) AS ended GROUP BY 1",
        (action_id, list(numbers)),
    )
    return dict(rows)


def keeps_outcomes(group: str) -> Script[bool]:
    """Whether a group writes the outcomes of its events into this database."""
    generation = Generation.named(group)
    rows = yield (
        "SELECT EXISTS (SELECT FROM processed_events WHERE group_name = %s AND generation = %s)",
        (generation.group, generation.number),
    )
    return bool(rows[0][0])


def _action(row: tuple[object, ...]) -> Action:
    action_id, kind, *rest = row
    return Action(action_id, Kind(str(kind)), *rest)  # type: ignore[arg-type]
