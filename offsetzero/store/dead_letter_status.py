"""What became of a dead letter, as PostgreSQL finds it: it is never stored, and follows from the decision of an
operator, from `processed_events`, and from whether its event was dead-lettered again.

In the fragments `l` is the dead letter, `d` the decision about it (`dead_letter_decisions`), `a` its action.
"""

from enum import StrEnum

from offsetzero.store.forced import OF_LETTER


class Status(StrEnum):
    """What became of a dead letter."""

    OPEN = "open"
    """Nobody has decided about it, or what was decided is not carried out yet."""
    REDRIVEN = "redriven"
    """Sent again, and its event has not ended yet."""
    RESOLVED = "resolved"
    """Sent again, and applied."""
    ENDED = "ended"
    """Sent again, and its event ended without being applied: it failed, was cancelled, or was dead-lettered again, as a
    letter of its own that is open."""
    DISCARDED = "discarded"
    """Given up."""


_GROUP = "regexp_replace(l.group_name, '\\.g[1-9]\\d{0,8}$', '')"
_NUMBER = "coalesce(substring(l.group_name FROM '\\.g([1-9]\\d{0,8})$'), '1')::int"


def of_its_generation(table: str) -> str:
    """That a row is of the generation whose dead letter `l` is; later ones have `<group>.g<N>` for a name there."""
    return f"{table}.group_name = {_GROUP} AND {table}.generation = {_NUMBER}"


def of_its_event(table: str) -> str:
    """That an outcome is of the generation in which the event of the dead letter `l` has its own.

    It is another one than that of the letter's topic where the group was forced to handle the record again.
    """
    return f"{table}.group_name = {_GROUP} AND {table}.generation = greatest({_NUMBER}, {OF_LETTER})"


_OUTCOMES = f"FROM processed_events p WHERE {of_its_event('p')} AND p.source = l.source AND p.event_id = l.event_id"
_APPLIED = f"EXISTS (SELECT {_OUTCOMES} AND p.redrive_no >= l.redrive_no AND p.outcome IN ('applied', 'stale'))"
_ENDS = "p.redrive_no >= l.redrive_no AND (p.redrive_no > l.redrive_no OR p.outcome <> 'dead-lettered')"
"""That an outcome is of after the letter, as in `processed.ended`: under its own number there is one where its event
was handled once more without it, as by a forced replay."""
_HAS_ENDED = f"EXISTS (SELECT {_OUTCOMES} AND {_ENDS})"
_NEWER = (
    "EXISTS (SELECT FROM dead_letters n WHERE n.group_name = l.group_name AND n.event_id = l.event_id"
    " AND n.source = l.source AND n.redrive_no > l.redrive_no AND n.failed_at >= l.failed_at AND n.redrive_no > 0)"
)
"""That its event was dead-lettered again; a group without a database writes no outcome that says so.

Letters from before a forced replay are older. The last condition follows from the others: it is that of the index.
"""
_SENT = "d.done_at IS NOT NULL AND a.kind <> 'discard'"
STATUS = (
    "CASE WHEN d.done_at IS NULL THEN 'open' WHEN a.kind = 'discard' THEN 'discarded'"
    f" WHEN {_APPLIED} THEN 'resolved' WHEN {_NEWER} OR {_HAS_ENDED} THEN 'ended' ELSE 'redriven' END"
)
OPEN = (
    "NOT EXISTS (SELECT FROM dead_letter_decisions x WHERE x.topic_id = l.topic_id "
    "AND x.partition = l.partition AND x.place = l.place AND x.done_at IS NOT NULL)"
)
IS = {
    Status.OPEN: OPEN,
    Status.DISCARDED: "d.done_at IS NOT NULL AND a.kind = 'discard'",
    Status.RESOLVED: f"{_SENT} AND {_APPLIED}",
    Status.ENDED: f"{_SENT} AND CASE WHEN {_APPLIED} THEN false ELSE {_NEWER} OR {_HAS_ENDED} END",
    Status.REDRIVEN: f"{_SENT} AND NOT {_HAS_ENDED} AND NOT {_NEWER}",
}
"""The cases of `STATUS` as joins: of a million the newest open ones are found without a look at the others, and of each
other one the outcomes are looked up once."""
OUTCOME = (
    f"CASE WHEN d.done_at IS NOT NULL THEN coalesce((SELECT p.outcome {_OUTCOMES} AND {_ENDS}"
    f" ORDER BY p.redrive_no DESC LIMIT 1), CASE WHEN {_NEWER} THEN 'dead-lettered' END) END"
)
"""How its event has ended since it was sent again."""
HELD_BY = (
    f"{of_its_generation('h')} AND h.topic_id = l.origin_topic_id AND h.partition = l.origin_partition"
    " AND h.origin = l.origin_offset AND h.redrive_no = l.redrive_no"
)
"""That `h` (holds) is the hold of the dead letter."""
HOLDS = f"EXISTS (SELECT FROM holds h WHERE {HELD_BY})"
