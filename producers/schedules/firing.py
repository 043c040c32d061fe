"""Do what a schedule is for, at a fire time, once.

A fire time is claimed by a row whose id follows from the schedule and the time, in the transaction of what is done:
whoever comes second, from another scheduler, after a crash or with a clock that was set back, changes nothing.
"""

import json
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from typing import NamedTuple
from uuid import UUID

from offsetzero import logs
from offsetzero.producers.schedules.policy import CatchUp, decide
from offsetzero.producers.schedules.timetable import timetable
from offsetzero.schemas.attributes import format_time
from offsetzero.schemas.ids import uuid7_of
from offsetzero.settings import Settings
from offsetzero.store import fires, outbox, reports, schedules
from offsetzero.store.outbox import OutboxRow
from offsetzero.store.schedules import Kind, Schedule
from offsetzero.store.script import Script
from offsetzero.tracing import Span

_FIRST_REPORT = timedelta(days=1)


class Acted(NamedTuple):
    """What was done for a schedule that was due: its fire times, and the first of those that were missed."""

    schedule: Schedule
    fires: Sequence[datetime]
    missed_since: datetime | None


def act(schedule_id: UUID, settings: Settings) -> Script[Acted | None]:
    """Do all that a schedule has to do by now, in the caller's transaction.

    Returns:
        What was done; None when another scheduler is at it, or it is paused.

    Raises:
        ConfigurationError: its zone is not known here.
    """
    schedule = yield from schedules.take(schedule_id)
    if schedule is None:
        return None
    table = timetable(schedule.cron, schedule.zone)
    at = yield from schedules.now()
    decision = decide(table, schedule.done_until, at, CatchUp(schedule.catch_up))
    fired = []
    for fire_at in decision.fires:
        missed_since = decision.missed_since if fire_at == decision.fires[0] else None
        fire_id = uuid7_of(fire_at, schedule.id.bytes)
        if (yield from _fire(schedule, fire_id, fire_at, settings, missed_since=missed_since)):
            fired.append(fire_at)
    if decision.done_until == schedule.done_until:
        yield from schedules.look_again(schedule.id, decision.done_until, decision.next_at)
    else:
        yield from schedules.decided(schedule.id, decision.done_until, decision.next_at)
    return Acted(schedule, fired, decision.missed_since)


def by_hand(schedule: Schedule, who: str, settings: Settings) -> Script[UUID]:
    """Do what a schedule is for now, because somebody wants it; its own fire times stay as they are.

    Args:
        schedule: held by the caller's transaction.
        who: for the record.
        settings: of this process.

    Returns:
        The id of the fire.
    """
    at = yield from schedules.now()
    fire_id = uuid7_of(at, schedule.id.bytes, b"by hand")
    yield from _fire(schedule, fire_id, at, settings, who=who)
    return fire_id


def span_of(fire_id: UUID) -> Span:
    """The trace of all that is done at a fire time, whoever does it: its id is that of the fire."""
    return Span(fire_id.hex, fire_id.hex[16:])


def _fire(
    schedule: Schedule,
    fire_id: UUID,
    fire_at: datetime,
    settings: Settings,
    *,
    missed_since: datetime | None = None,
    who: str | None = None,
) -> Script[bool]:
    goes_on = schedule.kind is Kind.REINDEX
    claimed = yield from fires.claim(
        fire_id, schedule.id, fire_at, goes_on=goes_on, missed_since=missed_since, by_hand=who
    )
    if not claimed:
        return False
    if schedule.kind is Kind.EVENT:
        yield from outbox.insert(_row(schedule, fire_id, fire_at, settings.source))
    elif schedule.kind is Kind.REPORT:
        since = yield from fires.last(schedule.id, fire_at)
        yield from reports.make(fire_id, schedule.tenant_id, since or fire_at - _FIRST_REPORT, fire_at)
    return True


def _row(schedule: Schedule, fire_id: UUID, fire_at: datetime, source: str) -> OutboxRow:
    """As JSON: the relay knows the models of events, and the scheduler need not."""
    assert schedule.event_type is not None  # noqa: S101 - the table demands it
    trace = (logs.span() or span_of(fire_id)).headers()  # of the request, when somebody has asked for it
    headers = {"ce_source": source, "ce_time": format_time(fire_at.astimezone(UTC)), **trace}
    headers |= {f"ce_{name}": value for name, value in trace.items()}
    if schedule.tenant_id is not None:
        headers["ce_tenantid"] = schedule.tenant_id
    return OutboxRow(
        fire_id,
        schedule.event_type.partition(".")[0],
        schedule.event_key,
        schedule.event_type,
        json.dumps(schedule.payload).encode(),
        None,
        json.dumps(headers),
    )
