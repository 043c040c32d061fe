"""Which event a member works on: marked before it begins, for those who come after its death (design section 7).

Only records that may have ended a process are marked. A mark that another member finds is a crash of which the record
may be guilty: it counts once that member works on the record and on nothing else.
"""

from typing import NamedTuple

from offsetzero.store.processed import EventIdentity
from offsetzero.store.script import Script

_BEGUN = (
    "INSERT INTO crash_marks AS mark (group_name, generation, source, event_id, redrive_no, member)"
    " SELECT group_name, generation, source, event_id, redrive_no, %s FROM (VALUES (%s, %s::int, %s, %s, %s::int))"
    " AS begun (group_name, generation, source, event_id, redrive_no) WHERE NOT EXISTS (SELECT FROM processed_events p"
    " WHERE p.group_name = begun.group_name AND p.generation = begun.generation AND p.source = begun.source"
    " AND p.event_id = begun.event_id AND p.redrive_no >= begun.redrive_no)"
    " ON CONFLICT (group_name, generation, source, event_id, redrive_no) DO UPDATE"
)
_OPEN = _BEGUN + " SET at = mark.at RETURNING crashes, member"  # changed by nothing: so that it is returned
_TAKE = _BEGUN + (
    " SET crashes = mark.crashes + (mark.member NOT IN ('', EXCLUDED.member))::int, member = EXCLUDED.member,"
    " at = now() RETURNING crashes, member"
)
_CLOSE = (
    "DELETE FROM crash_marks WHERE group_name = %s AND generation = %s AND source = %s AND event_id = %s"
    " AND redrive_no = %s"
)
# By now it may be the mark of another member, who has been given the partition.
_DROP = _CLOSE + " AND member = %s"
_GIVE_BACK = (
    "UPDATE crash_marks SET member = '' WHERE group_name = %s AND generation = %s AND source = %s AND event_id = %s"
    " AND redrive_no = %s AND member = %s"
)


class Mark(NamedTuple):
    """Of an event.

    Attributes:
        crashes: members that have died while they worked on it alone, or on it among others, one after the other.
        is_own: whether it is the asking member's.
    """

    crashes: int
    is_own: bool


def open_mark(identity: EventIdentity, member: str, *, alone: bool) -> Script[Mark | None]:
    """Mark that a member begins with an event, unless that has ended before.

    One statement: where it commits by itself, a mark costs one round trip.

    Args:
        identity: the event.
        member: a name of this process, which no other has had.
        alone: whether it works on nothing else meanwhile: only then the mark of another becomes its own, and counts
            as a crash. Otherwise it stays as it is, and the event must not be begun.

    Returns:
        The mark that is there now; None where the event has an outcome.
    """
    rows = yield _TAKE if alone else _OPEN, (member, *identity.key())
    return Mark(int(rows[0][0]), rows[0][1] == member) if rows else None


def close_mark(identity: EventIdentity) -> Script[None]:
    """A member has worked on the event and lives, whatever came of it; in a transaction, when that commits."""
    yield _CLOSE, identity.key()


def give_back(identity: EventIdentity, member: str, crashes: int) -> Script[None]:
    """The member that has marked the event did not begin with it: what was counted before stays, and no more is.

    Args:
        identity: the event.
        member: as for `open_mark`; the mark of another stays as it is.
        crashes: as `open_mark` has said.
    """
    yield _GIVE_BACK if crashes else _DROP, (*identity.key(), member)
