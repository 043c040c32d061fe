"""Schedules, and the audit of who has changed them (tables `schedules`, `schedule_actions`)."""

from collections.abc import Mapping
from dataclasses import dataclass, fields
from datetime import datetime, timedelta
from enum import StrEnum
from typing import Any, NamedTuple
from uuid import UUID

from psycopg.types.json import Jsonb

from offsetzero.clock import SYSTEM
from offsetzero.schemas.ids import first_of, uuid7
from offsetzero.store.script import Script
from offsetzero.store.sentences import storable

KEPT = timedelta(days=730)
"""For how long it is known who did what to a schedule."""
PRUNED_AT_ONCE = 5_000


class Kind(StrEnum):
    """What is done at a fire time."""

    REINDEX = "reindex"
    """Another run of each document."""
    REPORT = "report"
    """A row of counts for each tenant."""
    EVENT = "event"
    """An event is published."""


class Action(StrEnum):
    """What somebody has done to a schedule."""

    ADDED = "added"
    PAUSED = "paused"
    RESUMED = "resumed"
    RUN = "run"
    REMOVED = "removed"


@dataclass(frozen=True, slots=True, kw_only=True)
class Schedule:
    """What is to be done again and again. Without a tenant it is one of operators, for all tenants.

    Attributes:
        done_until: fire times up to then are decided.
        next_at: when it fires next; None when it never does again.
        error: why it could not be done when it was last tried.
    """

    id: UUID
    tenant_id: str | None
    name: str
    kind: Kind
    cron: str
    zone: str
    catch_up: str
    event_type: str | None = None
    event_key: str | None = None
    payload: Mapping[str, Any] | None = None
    created_at: datetime
    paused_at: datetime | None = None
    done_until: datetime
    next_at: datetime | None
    error: str | None = None


class Done(NamedTuple):
    """Something that somebody has done to a schedule."""

    at: datetime
    action: Action
    who: str


_COLUMNS = ", ".join(field.name for field in fields(Schedule))


def now() -> Script[datetime]:
    """The database's time: the same for all schedulers."""
    rows = yield "SELECT clock_timestamp()", ()
    at: datetime = rows[0][0]
    return at


def add(schedule: Schedule, *, most: int | None = None) -> Script[bool]:
    """Add a schedule. False when there is one of that name, or the tenant has so many already.

    Args:
        schedule: its name is new for its tenant.
        most: of one tenant; those who add at the same time take turns.
    """
    values = {field.name: getattr(schedule, field.name) for field in fields(schedule)}
    values["payload"] = None if schedule.payload is None else Jsonb(schedule.payload)
    if most is not None:
        yield "SELECT pg_advisory_xact_lock(hashtextextended(%s, 0))", (f"schedules {schedule.tenant_id}",)
    rows = yield (
        f"INSERT INTO schedules ({_COLUMNS}) SELECT {', '.join(['%s'] * len(values))} "  # noqa: S608
        "WHERE %s::int IS NULL OR (SELECT count(*) FROM schedules WHERE tenant_id = %s) < %s "
        "ON CONFLICT (tenant_id, name) DO NOTHING RETURNING id",
        (*values.values(), most, schedule.tenant_id, most),
    )
    return bool(rows)


def find(tenant_id: str, schedule_id: UUID) -> Script[Schedule | None]:
    """A tenant's schedule; None when there is none, and when it is another's."""
    rows = yield f"SELECT {_COLUMNS} FROM schedules WHERE id = %s AND tenant_id = %s", (schedule_id, tenant_id)  # noqa: S608
    return _schedule(rows[0]) if rows else None


def is_taken(tenant_id: str, name: str) -> Script[bool]:
    """Whether a tenant has a schedule of that name."""
    rows = yield "SELECT 1 FROM schedules WHERE tenant_id = %s AND name = %s", (tenant_id, name)
    return bool(rows)


def named(name: str) -> Script[list[Schedule]]:
    """The schedules of all tenants that are called so, or have that id; those of operators first."""
    rows = yield (
        f"SELECT {_COLUMNS} FROM schedules WHERE name = %s OR id::text = %s ORDER BY tenant_id NULLS FIRST",  # noqa: S608
        (name, name.lower()),
    )
    return [_schedule(row) for row in rows]


def page(tenant_id: str, *, limit: int, before: UUID | None = None) -> Script[list[Schedule]]:
    """A tenant's schedules, newest first; `before` is the id of the last one of the page before."""
    rows = yield (
        f"SELECT {_COLUMNS} FROM schedules WHERE tenant_id = %s AND (%s::uuid IS NULL OR id < %s) "  # noqa: S608
        "ORDER BY id DESC LIMIT %s",
        (tenant_id, before, before, limit),
    )
    return [_schedule(row) for row in rows]


def every(tenant_id: str | None = None) -> Script[list[Schedule]]:
    """All schedules, or those of a tenant, by tenant and name."""
    rows = yield (
        f"SELECT {_COLUMNS} FROM schedules WHERE %s::text IS NULL OR tenant_id = %s "  # noqa: S608
        "ORDER BY tenant_id NULLS FIRST, name",
        (tenant_id, tenant_id),
    )
    return [_schedule(row) for row in rows]


def hold(schedule_id: UUID) -> Script[Schedule | None]:
    """A schedule, held until the transaction ends; None when it is gone."""
    rows = yield f"SELECT {_COLUMNS} FROM schedules WHERE id = %s FOR UPDATE", (schedule_id,)  # noqa: S608
    return _schedule(rows[0]) if rows else None


def due(at: datetime, most: int) -> Script[list[tuple[UUID, Kind]]]:
    """Schedules to be looked at: those that are due, and those that the clock says were decided in the future.

    All are gone through, in 0.9 ms of 10,000: an index of `done_until` would cost more, at each fire.

    Args:
        at: the time.
        most: how many; the longest due first, but reports, which may take long, behind all others.
    """
    rows = yield (
        "SELECT id, kind FROM schedules WHERE paused_at IS NULL AND (next_at <= %s OR done_until > %s) "
        "ORDER BY kind = 'report', next_at LIMIT %s",
        (at, at, most),
    )
    return [(id_, Kind(kind)) for id_, kind in rows]


def take(schedule_id: UUID) -> Script[Schedule | None]:
    """A schedule that is not paused, held until the transaction ends; None when another scheduler has it."""
    rows = yield (
        f"SELECT {_COLUMNS} FROM schedules WHERE id = %s AND paused_at IS NULL FOR UPDATE SKIP LOCKED",  # noqa: S608
        (schedule_id,),
    )
    return _schedule(rows[0]) if rows else None


def decided(schedule_id: UUID, done_until: datetime, next_at: datetime | None) -> Script[None]:
    """Write that all fire times up to then are decided, and when the next one comes."""
    yield (
        "UPDATE schedules SET done_until = %s, next_at = %s, error = NULL WHERE id = %s",
        (done_until, next_at, schedule_id),
    )


def look_again(schedule_id: UUID, done_until: datetime, next_at: datetime | None) -> Script[None]:
    """Correct when a schedule fires next, unless something was decided since. It can be done: it has no error."""
    yield (
        "UPDATE schedules SET next_at = %s, error = NULL WHERE id = %s AND done_until = %s "
        "AND (next_at IS DISTINCT FROM %s OR error IS NOT NULL)",
        (next_at, schedule_id, done_until, next_at),
    )


def failed(schedule_id: UUID, error: str, again_at: datetime) -> Script[None]:
    """Write why a schedule could not be done, and when it is tried again. Nothing of it is decided."""
    yield "UPDATE schedules SET error = %s, next_at = %s WHERE id = %s", (storable(error), again_at, schedule_id)


def pause(schedule_id: UUID, at: datetime) -> Script[None]:
    """Let a schedule fire no more, from then on."""
    yield "UPDATE schedules SET paused_at = %s WHERE id = %s", (at, schedule_id)


def resume(schedule_id: UUID, done_until: datetime, next_at: datetime | None) -> Script[None]:
    """Let a schedule fire again, from then on: what came due meanwhile is not made up for."""
    yield (
        "UPDATE schedules SET paused_at = NULL, error = NULL, done_until = %s, next_at = %s WHERE id = %s",
        (done_until, next_at, schedule_id),
    )


def remove(schedule_id: UUID) -> Script[None]:
    """End a schedule; what it has done is forgotten, but not its reports."""
    yield "DELETE FROM schedules WHERE id = %s", (schedule_id,)


def note(schedule: Schedule, action: Action, who: str) -> Script[None]:
    """Write into the audit who has done what."""
    yield (
        "INSERT INTO schedule_actions (id, schedule_id, tenant_id, name, action, who) VALUES (%s, %s, %s, %s, %s, %s)",
        (uuid7(), schedule.id, schedule.tenant_id, schedule.name, action, who),
    )


def actions(schedule_id: UUID) -> Script[list[Done]]:
    """What was done to a schedule, oldest first."""
    rows = yield "SELECT at, action, who FROM schedule_actions WHERE schedule_id = %s ORDER BY id", (schedule_id,)
    return [Done(at, Action(action), who) for at, action, who in rows]


def prune() -> Script[int]:
    """Forget some of what was done to schedules long ago; returns how much."""
    rows = yield (
        "DELETE FROM schedule_actions WHERE id IN (SELECT id FROM schedule_actions WHERE id < %s AND at < now() - "
        "%s::interval ORDER BY id LIMIT %s FOR UPDATE SKIP LOCKED) RETURNING 1",  # another scheduler may be at it
        (first_of(SYSTEM.now() - KEPT), KEPT, PRUNED_AT_ONCE),
    )
    return len(rows)


def lateness(at: datetime) -> Script[float]:
    """For how many seconds the schedule has been due that has been it the longest."""
    rows = yield "SELECT min(next_at) FROM schedules WHERE paused_at IS NULL", ()
    oldest: datetime | None = rows[0][0]
    return max(0.0, (at - oldest).total_seconds()) if oldest is not None else 0.0


def _schedule(row: tuple[Any, ...]) -> Schedule:
    values = dict(zip(_COLUMNS.split(", "), row, strict=True))
    return Schedule(**{**values, "kind": Kind(values["kind"])})
