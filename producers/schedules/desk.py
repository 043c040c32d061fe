"""What people do to schedules, each of it with a line in the audit: add, pause, resume, run now, remove."""

import json
import re
from collections.abc import Mapping
from dataclasses import replace
from datetime import datetime
from typing import Any
from uuid import UUID

from offsetzero.errors import ConfigurationError, SchemaError, TopicError
from offsetzero.producers.schedules import firing
from offsetzero.producers.schedules.policy import CatchUp
from offsetzero.producers.schedules.timetable import Timetable, timetable
from offsetzero.schemas.codec import Codec
from offsetzero.schemas.event import event_class, event_types
from offsetzero.schemas.ids import uuid7
from offsetzero.settings import Settings
from offsetzero.store import schedules
from offsetzero.store.schedules import Action, Kind, Schedule
from offsetzero.store.script import Script
from offsetzero.topics.catalogue import topic_of

NAME = r"[A-Za-z0-9][A-Za-z0-9._-]{0,99}"


def new(
    name: str,
    kind: Kind,
    cron: str,
    *,
    zone: str = "UTC",
    catch_up: CatchUp = CatchUp.ONCE,
    tenant_id: str | None = None,
    event_type: str | None = None,
    payload: Mapping[str, Any] | None = None,
    at: datetime,
) -> Schedule:
    """A schedule that fires from now on; not stored yet.

    Args:
        name: new for its tenant.
        kind: what it is for.
        cron: five fields.
        zone: in which the fields are read.
        catch_up: what becomes of fire times that are missed.
        tenant_id: None means all tenants.
        event_type: of the kind `event`; the process knows its model.
        payload: of the kind `event`: the event's fields, as JSON has them.
        at: now, by the database.

    Raises:
        ConfigurationError: with every mistake: name, cron, zone, event type, payload.
    """
    problems, key, table = [], None, None
    if not re.fullmatch(NAME, name):
        problems.append(f"name {name[:60]!r}: use 1 to 100 letters, digits, '.', '_' or '-', a letter or digit first")
    try:
        table = Timetable(cron, zone)
    except ConfigurationError as error:
        problems += error.problems
    if kind is Kind.EVENT:
        try:
            key = _key(event_type, payload, tenant_id)
        except ConfigurationError as error:
            problems += error.problems
    elif event_type is not None or payload is not None:
        problems.append(f"kind {kind}: has no event type and no payload; the kind 'event' has")
    if problems or table is None:
        raise ConfigurationError(problems)
    return Schedule(
        id=uuid7(),
        tenant_id=tenant_id,
        name=name,
        kind=kind,
        cron=" ".join(cron.split()),
        zone=zone,
        catch_up=catch_up.value,
        event_type=event_type,
        event_key=key,
        payload=payload,
        created_at=at,
        done_until=at,
        next_at=table.after(at),
    )


def add(schedule: Schedule, who: str, *, most: int | None = None) -> Script[bool]:
    """Store a schedule. False when its tenant has one of that name, or `most` already."""
    added = yield from schedules.add(schedule, most=most)
    if added:
        yield from schedules.note(schedule, Action.ADDED, who)
    return added


def pause(schedule_id: UUID, who: str) -> Script[Schedule | None]:
    """Let a schedule fire no more, until it is resumed; a re-index under way waits behind its page.

    Returns:
        It, as it is now; None when there is none.
    """
    schedule = yield from schedules.hold(schedule_id)
    if schedule is None or schedule.paused_at is not None:
        return schedule
    at = yield from schedules.now()
    yield from schedules.pause(schedule_id, at)
    yield from schedules.note(schedule, Action.PAUSED, who)
    return replace(schedule, paused_at=at)


def resume(schedule_id: UUID, who: str) -> Script[Schedule | None]:
    """Let a schedule fire again, from now on: what came due meanwhile was not missed, nobody wanted it.

    Returns:
        It, as it is now; None when there is none.
    """
    schedule = yield from schedules.hold(schedule_id)
    if schedule is None or schedule.paused_at is None:
        return schedule
    at = yield from schedules.now()
    next_at = timetable(schedule.cron, schedule.zone).after(at)
    yield from schedules.resume(schedule_id, at, next_at)
    yield from schedules.note(schedule, Action.RESUMED, who)
    return replace(schedule, paused_at=None, error=None, done_until=at, next_at=next_at)


def run_now(schedule_id: UUID, who: str, settings: Settings) -> Script[UUID | None]:
    """Do what a schedule is for now, also while it is paused.

    Returns:
        The id of the fire; None when there is no such schedule.
    """
    schedule = yield from schedules.hold(schedule_id)
    if schedule is None:
        return None
    fire_id = yield from firing.by_hand(schedule, who, settings)
    yield from schedules.note(schedule, Action.RUN, who)
    return fire_id


def remove(schedule_id: UUID, who: str) -> Script[bool]:
    """End a schedule, and a re-index of it that is under way; False when there is none."""
    schedule = yield from schedules.hold(schedule_id)
    if schedule is None:
        return False
    yield from schedules.note(schedule, Action.REMOVED, who)
    yield from schedules.remove(schedule_id)
    return True


def _key(event_type: str | None, payload: Mapping[str, Any] | None, tenant_id: str | None) -> str:
    """The record key of an event that can be published."""
    if event_type is None or payload is None:
        raise ConfigurationError("kind event: needs an event type and a payload")
    shown = f"event type {event_type[:60]!r}"
    codec = Codec()  # importing it has made the built-in types known
    try:
        data = json.dumps(payload, ensure_ascii=False, allow_nan=False).encode()
    except (ValueError, RecursionError):  # numbers that are none, half of a pair of surrogates; a thousand brackets
        raise ConfigurationError("payload: a value in it is no JSON that can be stored") from None
    if b"\\u0000" in data:
        raise ConfigurationError("payload: PostgreSQL takes no NUL in JSON")
    if event_class(event_type) is None:
        known = ", ".join(sorted(event_types()))
        raise ConfigurationError(f"{shown}: this process knows only {known}; give the module of yours by --module")
    try:
        topic_of(event_type)
        event = codec.decode(event_type, data, "application/json")
    except TopicError as error:
        raise ConfigurationError(f"{shown}: {error}") from None
    except SchemaError as error:
        raise ConfigurationError(f"payload: {str(error).removeprefix(f'{event_type}: ')}") from None
    of_event = getattr(event, "tenant_id", None)
    if tenant_id is not None and of_event and of_event != tenant_id:
        raise ConfigurationError(f"payload: tenant_id is {of_event!r}, and the schedule is one of {tenant_id!r}")
    return event.key
