"""Which event a member works on: marked before it begins, for those who come after its death (design section 7).

Only records that may have ended a process are marked, one at a time: a mark that another member finds is a crash.
"""

from offsetzero.store.processed import EventIdentity
from offsetzero.store.script import Script

_OPEN = (
    "INSERT INTO crash_marks AS mark (group_name, generation, source, event_id, redrive_no, member)"
    " SELECT group_name, generation, source, event_id, redrive_no, %s FROM (VALUES (%s, %s::int, %s, %s, %s::int))"
    " AS begun (group_name, generation, source, event_id, redrive_no) WHERE NOT EXISTS (SELECT FROM processed_events p"
    " WHERE p.group_name = begun.group_name AND p.generation = begun.generation AND p.source = begun.source"
    " AND p.event_id = begun.event_id AND p.redrive_no >= begun.redrive_no)"
    " ON CONFLICT (group_name, generation, source, event_id, redrive_no) DO UPDATE"
    " SET crashes = mark.crashes + (mark.member <> EXCLUDED.member)::int, member = EXCLUDED.member, at = now()"
    " RETURNING crashes"
)
_CLOSE = (
    "DELETE FROM crash_marks WHERE group_name = %s AND generation = %s AND source = %s AND event_id = %s"
    " AND redrive_no = %s"
)


def open_mark(identity: EventIdentity, member: str) -> Script[int | None]:
    """Mark that a member begins with an event, unless that has ended before.

    One statement: where it commits by itself, a mark costs one round trip.

    Args:
        identity: the event.
        member: a name of this process, which no other has had.

    Returns:
        How many members have died with the event's mark open, one after the other; None where it has an outcome.
    """
    rows = yield _OPEN, (member, *identity.key())
    return int(rows[0][0]) if rows else None


def close_mark(identity: EventIdentity) -> Script[None]:
    """The work on the event has ended, however it did; in a transaction, when that commits."""
    yield _CLOSE, identity.key()
