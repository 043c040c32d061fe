"""What schedules have done at their fire times, and re-indexes that are under way (table `schedule_fires`)."""

from collections.abc import Collection
from datetime import datetime, timedelta
from typing import NamedTuple
from uuid import UUID

from offsetzero.clock import SYSTEM
from offsetzero.schemas.ids import first_of
from offsetzero.store.script import Script

KEPT = timedelta(days=90)
"""For how long it is known what was done at a fire time."""
PRUNED_AT_ONCE = 5_000


class Fire(NamedTuple):
    """What was done at a fire time. `ended_at` is None while a re-index is under way; `documents` are those of one."""

    id: UUID
    schedule_id: UUID
    fire_at: datetime
    by_hand: str | None
    missed_since: datetime | None
    fired_at: datetime
    ended_at: datetime | None
    documents: int | None


class Page(NamedTuple):
    """A re-index that is under way. `after` is the last document that it has come to."""

    fire_id: UUID
    fire_at: datetime
    tenant_id: str | None
    after: UUID | None


_COLUMNS = ", ".join(Fire._fields)


def claim(
    fire_id: UUID,
    schedule_id: UUID,
    fire_at: datetime,
    *,
    goes_on: bool,
    missed_since: datetime | None = None,
    by_hand: str | None = None,
) -> Script[bool]:
    """Claim a fire time, in the transaction of what is done at it. False when it was claimed before: nothing to do.

    Args:
        fire_id: follows from the schedule and the fire time.
        goes_on: it is not over with this transaction; unless another one of the schedule that goes on, too, waits for
            its first page: then this one is over, and that one stands for it.
        missed_since: the first fire time that it stands for besides its own.
        by_hand: who wants it now.
    """
    rows = yield (
        "INSERT INTO schedule_fires (id, schedule_id, fire_at, by_hand, missed_since, ended_at, documents) "
        "SELECT %s, %s, %s, %s, %s, CASE WHEN NOT %s OR EXISTS (SELECT FROM schedule_fires w WHERE w.schedule_id = %s "
        "AND w.ended_at IS NULL AND w.last_document IS NULL AND (w.by_hand IS NULL) = %s) THEN clock_timestamp() END, "
        "CASE WHEN %s THEN 0 END ON CONFLICT DO NOTHING RETURNING id",
        # One by hand goes on while the schedule is paused: another one does not stand for it.
        (fire_id, schedule_id, fire_at, by_hand, missed_since, goes_on, schedule_id, by_hand is None, goes_on),
    )
    return bool(rows)


def last(schedule_id: UUID, before: datetime) -> Script[datetime | None]:
    """The last fire time before another one that was acted upon, not counting what somebody wanted by hand."""
    rows = yield (
        "SELECT max(fire_at) FROM schedule_fires WHERE schedule_id = %s AND fire_at < %s AND by_hand IS NULL",
        (schedule_id, before),
    )
    at: datetime | None = rows[0][0]
    return at


def find(fire_id: UUID) -> Script[Fire]:
    """One that was claimed in this transaction."""
    rows = yield f"SELECT {_COLUMNS} FROM schedule_fires WHERE id = %s", (fire_id,)  # noqa: S608
    return Fire(*rows[0])


def page(schedule_id: UUID, *, limit: int, before: UUID | None = None) -> Script[list[Fire]]:
    """What a schedule has done, newest first; `before` is the id of the last one of the page before."""
    rows = yield (
        f"SELECT {_COLUMNS} FROM schedule_fires WHERE schedule_id = %s AND (%s::uuid IS NULL OR fire_at < "  # noqa: S608
        "(SELECT b.fire_at FROM schedule_fires b WHERE b.id = %s AND b.schedule_id = %s)) "
        "ORDER BY fire_at DESC LIMIT %s",
        (schedule_id, before, before, schedule_id, limit),
    )
    return [Fire(*row) for row in rows]


def take_page(after: str = "", resting: Collection[UUID] = ()) -> Script[Page | None]:
    """The oldest re-index under way of the next tenant that nobody else works at, held until the transaction ends; None
    when there is none. One of a schedule that is paused waits, unless somebody has asked for it.

    Args:
        after: the tenant that had its turn last, "" for operators: others come first.
        resting: fires that are not to be taken now.
    """
    rows = yield (
        "SELECT f.id, f.fire_at, s.tenant_id, f.last_document FROM schedule_fires f JOIN schedules s "
        "ON s.id = f.schedule_id WHERE f.ended_at IS NULL AND (s.paused_at IS NULL OR f.by_hand IS NOT NULL) "
        "AND f.id <> ALL (%s) ORDER BY coalesce(s.tenant_id, '') <= %s, coalesce(s.tenant_id, ''), f.fire_at "
        "LIMIT 1 FOR NO KEY UPDATE OF f SKIP LOCKED",
        (list(resting), after),
    )
    return Page(*rows[0]) if rows else None


def turn_page(fire_id: UUID, documents: int, last: UUID) -> Script[None]:
    """Write how far a re-index has come."""
    yield (
        "UPDATE schedule_fires SET documents = documents + %s, last_document = %s WHERE id = %s",
        (documents, last, fire_id),
    )


def end(fire_id: UUID) -> Script[None]:
    """Write that a re-index is over."""
    yield "UPDATE schedule_fires SET ended_at = clock_timestamp() WHERE id = %s", (fire_id,)


def prune() -> Script[int]:
    """Forget some of what was done long ago, but not the last of a schedule's own times; returns how many were
    forgotten."""
    rows = yield (
        "DELETE FROM schedule_fires WHERE id IN (SELECT f.id FROM schedule_fires f WHERE f.id < %s "
        "AND f.ended_at < now() - %s::interval AND (f.by_hand IS NOT NULL OR EXISTS (SELECT FROM schedule_fires l "
        "WHERE l.schedule_id = f.schedule_id AND l.fire_at > f.fire_at AND l.by_hand IS NULL)) "
        "ORDER BY f.id LIMIT %s FOR UPDATE OF f SKIP LOCKED) RETURNING 1",  # another scheduler may be at it
        (first_of(SYSTEM.now() - KEPT), KEPT, PRUNED_AT_ONCE),  # ids are of the fire times: it need not look at all
    )
    return len(rows)
