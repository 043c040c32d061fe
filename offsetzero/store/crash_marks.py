"""Which event a member works on: marked before it begins, for those who come after its death (design section 7).

Only records that may have ended a process are marked, one at a time: a mark that another member finds is a crash.
"""

from offsetzero.store.processed import EventIdentity
from offsetzero.store.script import Script

_OPEN = (
    "INSERT INTO crash_marks AS mark (group_name, generation, source, event_id, redrive_no, member)"
    " VALUES (%s, %s, %s, %s, %s, %s) ON CONFLICT (group_name, generation, source, event_id, redrive_no) DO UPDATE"
    " SET crashes = mark.crashes + (mark.member <> EXCLUDED.member)::int, member = EXCLUDED.member, at = now()"
    " RETURNING crashes"
)
_CLOSE = (
    "DELETE FROM crash_marks WHERE group_name = %s AND generation = %s AND source = %s AND event_id = %s"
    " AND redrive_no = %s"
)


def open_mark(identity: EventIdentity, member: str) -> Script[int]:
    """Mark that a member begins with an event.

    Args:
        identity: the event.
        member: a name of this process, which no other has had.

    Returns:
        How many members have died with the event's mark open, one after the other.
    """
    rows = yield _OPEN, (*identity.key(), member)
    return int(rows[0][0])


def close_mark(identity: EventIdentity) -> Script[None]:
    """The work on the event has ended, however it did."""
    yield _CLOSE, identity.key()
