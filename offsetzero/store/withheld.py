"""What a generation that is not read would have done besides its tables (table `withheld_effects`).

The effects of an event happen once for a group, whichever of its generations has them: the one that is read when it
handles the event; or another, when it is read later and no other has had them by then. That is known by outcomes:
an event that a generation has applied, and not in silence, has had its effects. One that it has cancelled, and not in
silence, is to have none.
"""

import json
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any
from uuid import UUID

from offsetzero.generation import Generation
from offsetzero.store.outbox import OutboxRow
from offsetzero.store.processed import EventIdentity, Outcome
from offsetzero.store.script import Script, Statement, in_parts

LOCK = 0x6F7A_0004
"""First half of the advisory lock of those who do what a group owes; the other is the hash of its name."""


@dataclass(frozen=True, slots=True)
class StepEnd:
    """How the group's step of a run would have ended.

    Attributes:
        outcome: of the event.
        run_id: the run that it names.
        reason: of a failure, in one word.
        detail: of a failure, for people.
        warning: what the user should know although it went well.
        correlation_id: of the event, for one that says that the run is over.
        causation_id: the id of the event.
    """

    outcome: Outcome
    run_id: UUID
    reason: str | None = None
    detail: str | None = None
    warning: str | None = None
    correlation_id: str | None = None
    causation_id: str | None = None


@dataclass(frozen=True, slots=True)
class Owed:
    """Something withheld of an event: one of the two is given."""

    source: str
    event_id: str
    step: StepEnd | None
    row: OutboxRow | None


_EMITTED = (
    "SELECT EXISTS (SELECT FROM processed_events WHERE group_name = %s AND generation = ANY (%s) AND source = %s"
    " AND event_id = %s AND outcome IN ('applied', 'cancelled') AND NOT silent)"
)
_DISCARD = "DELETE FROM withheld_effects WHERE group_name = %s AND generation = %s AND source = %s AND event_id = %s"
_FAILED = (
    "SELECT DISTINCT p.source, p.event_id FROM unnest(%s::text[], %s::text[]) AS e (source, event_id)"
    " JOIN processed_events p ON p.group_name = %s AND p.generation = ANY (%s) AND p.source = e.source"
    " AND p.event_id = e.event_id AND p.outcome IN ('failed', 'dead-lettered') AND NOT p.silent"
)
_KEY = "group_name, generation, source, event_id"
_STEP = "outcome, run_id, reason, detail, warning, correlation_id, causation_id"
_ROW = "outbox_id, aggregatetype, aggregateid, type, payload, topic, headers"
_PUT = f"INSERT INTO withheld_effects ({_KEY}, {{}}) VALUES ({'%s, ' * 10}%s{{}})"  # noqa: S608
_PUT_STEP, _PUT_ROW = _PUT.format(_STEP, ""), _PUT.format(_ROW, "::jsonb")
_TAKE = (
    "WITH first AS MATERIALIZED (SELECT DISTINCT source, event_id FROM (SELECT source, event_id FROM withheld_effects"  # noqa: S608
    " WHERE group_name = %s AND generation = %s ORDER BY number LIMIT %s) AS f)"
    " DELETE FROM withheld_effects w USING first WHERE w.group_name = %s AND w.generation = %s"
    " AND w.source = first.source AND w.event_id = first.event_id"
    f" RETURNING w.number, w.source, w.event_id, {_STEP}, {_ROW}"
)
_SPOKEN = (
    "UPDATE processed_events SET silent = false WHERE group_name = %s AND generation = %s AND source = %s"
    " AND event_id = %s AND silent"
)
_SWEEP = (
    "DELETE FROM withheld_effects w USING processed_events p WHERE w.group_name = %s AND w.generation <> %s"
    " AND p.group_name = w.group_name AND p.generation = %s AND p.source = w.source AND p.event_id = w.event_id"
    " AND p.outcome IN ('applied', 'cancelled') AND NOT p.silent"
)


def is_done(identity: EventIdentity, others: Sequence[int]) -> Script[bool]:
    """Whether another generation has had the effects of an event, or has cancelled it.

    Args:
        identity: of the event, in this generation.
        others: the numbers of all others that there have ever been.
    """
    rows = yield _EMITTED, (identity.group, list(others), identity.source, identity.event_id)
    return bool(rows[0][0])


def failed(group: str, events: Sequence[tuple[str, str]], others: Sequence[int]) -> Script[set[tuple[str, str]]]:
    """Those of the events (source, id) that another generation has ended as failed or dead, and has told so.

    Args:
        group: its name.
        events: asked about.
        others: the numbers of all other generations that there have ever been.
    """

    def ask(some: Sequence[tuple[str, str]]) -> Statement:
        return _FAILED, ([one[0] for one in some], [one[1] for one in some], group, list(others))

    rows = yield from in_parts(events, ask)
    return {(row[0], row[1]) for row in rows}


def put(identity: EventIdentity, step: StepEnd | None, rows: Sequence[OutboxRow]) -> Script[None]:
    """Withhold the effects of an event, in the transaction of its outcome; those of an earlier outcome go."""
    key = identity.group, identity.generation, identity.source, identity.event_id
    if identity.redrive_no:
        yield _DISCARD, key
    if step is not None:
        said = step.run_id, step.reason, step.detail, step.warning, step.correlation_id, step.causation_id
        yield _PUT_STEP, (*key, step.outcome.value, *said)
    for row in rows:
        columns = row.id, row.aggregatetype, row.aggregateid, row.type, row.payload, row.topic, row.headers
        yield _PUT_ROW, (*key, *columns)


def take(generation: Generation, most: int) -> Script[list[Owed]]:
    """Take out the first of what a generation has withheld, to do it in this transaction.

    About so many, and all of an event that is among them: another generation may be read before the next are done, and
    for that one an event has had its effects or has not.
    """
    key = generation.group, generation.number
    rows = yield _TAKE, (*key, most, *key)
    return [_owed(row) for row in sorted(rows)]


def has_spoken(identity: EventIdentity) -> Script[None]:
    """Note that the effects of an event have been done for this generation."""
    yield _SPOKEN, (identity.group, identity.generation, identity.source, identity.event_id)


def sweep(generation: Generation) -> Script[None]:
    """Take out what others withhold, and this generation, which is read, has done."""
    yield _SWEEP, (generation.group, generation.number, generation.number)


def count(generation: Generation) -> Script[int]:
    """How many effects a generation withholds."""
    rows = yield (
        "SELECT count(*) FROM withheld_effects WHERE group_name = %s AND generation = %s",
        (generation.group, generation.number),
    )
    return int(rows[0][0])


def _owed(row: tuple[Any, ...]) -> Owed:
    _, source, event_id, outcome, *said, outbox_id, aggregatetype, aggregateid, kind, payload, topic, headers = row
    if outbox_id is None:
        return Owed(source, event_id, StepEnd(Outcome(outcome), *said), None)
    made = OutboxRow(outbox_id, aggregatetype, aggregateid, kind, payload, topic, json.dumps(headers))
    return Owed(source, event_id, None, made)
