"""The shapes of answers and requests about schedules and reports."""

from datetime import datetime
from typing import Annotated, Any
from uuid import UUID

from pydantic import AfterValidator, BaseModel, ConfigDict, Field, StrictBool

from offsetzero.api.models import AT, Answer, like
from offsetzero.errors import ConfigurationError
from offsetzero.producers.schedules import desk
from offsetzero.producers.schedules.policy import CatchUp
from offsetzero.producers.schedules.timetable import MAX_CHARACTERS
from offsetzero.store.schedules import Kind

_SCHEDULE, _FIRE = "01981f60-02c7-7a44-b0de-9c4f1e7d8812", "01981f61-2a10-7d03-8b7e-6f0a4c1d9e22"
_NIGHT, _NEXT = "2026-01-31T01:30:00Z", "2026-02-01T01:30:00Z"
_ASKED: dict[str, Any] = {
    "name": "nightly",
    "kind": "reindex",
    "cron": "30 2 * * *",
    "zone": "Europe/Berlin",
    "catch_up": "once",
    "event_type": None,
    "payload": None,
}

KEY = "key "
"""What stands before the id of an API key, where it is said who has done something."""


def _why(error: str | None) -> str | None:
    """What a tenant is told of an error: what it can mend. Others tell of tables, and of other systems."""
    mends = f"{ConfigurationError.__name__}: "
    if error is None or error.startswith(mends):
        return error and error.removeprefix(mends)
    return "it could not be done; the log of the scheduler says why"


def _who(who: str | None) -> str | None:
    """Whom a tenant is told: a key of its own; of operators not the name, nor that of their machine."""
    return who if who is None or who.startswith(KEY) else "operator"


class ScheduleRequest(BaseModel):
    """What to do when. `cron` has five fields, which are read in `zone`; `event_type` and `payload` are of the kind
    `event`; `catch_up` says what becomes of fire times that are missed."""

    model_config = ConfigDict(extra="forbid", json_schema_extra={"examples": [_ASKED]})

    name: Annotated[str, Field(pattern=f"^{desk.NAME}$")]
    kind: Kind
    cron: Annotated[str, Field(min_length=1, max_length=MAX_CHARACTERS)]
    zone: Annotated[str, Field(min_length=1, max_length=100)] = "UTC"
    catch_up: CatchUp = CatchUp.ONCE
    event_type: Annotated[str, Field(max_length=200)] | None = None
    payload: dict[str, Any] | None = None


class ScheduleChange(BaseModel):
    """Whether it rests. What comes due meanwhile is not made up for."""

    model_config = ConfigDict(extra="forbid", json_schema_extra={"examples": [{"paused": True}]})

    paused: StrictBool


class ScheduleAnswer(Answer):
    """A schedule. `next_at` is when it fires next, if it is not paused; null when it never does again. `error` is why
    it could not be done when it was last tried; it is tried again each minute."""

    model_config = like(
        **{"id": _SCHEDULE, **_ASKED, "created_at": AT, "paused_at": None, "next_at": _NEXT, "error": None}
    )

    id: UUID
    name: str
    kind: Kind
    cron: str
    zone: str
    catch_up: CatchUp
    event_type: str | None
    payload: dict[str, Any] | None
    created_at: datetime
    paused_at: datetime | None
    next_at: datetime | None
    error: Annotated[str | None, AfterValidator(_why)]


class SchedulesAnswer(Answer):
    """A page of schedules, newest first. `next` is the `before` of the next page."""

    schedules: list[ScheduleAnswer]
    next: UUID | None


class FireAnswer(Answer):
    """What was done at a fire time. `by_hand` is who wanted it then, a key or an operator; `missed_since` the first of
    the missed fire times that it stands for; `documents` counts those of a re-index, which is under way until
    `ended_at`. The id is that of the event, or of the report."""

    model_config = like(
        id=_FIRE,
        fire_at=_NIGHT,
        by_hand=None,
        missed_since=None,
        fired_at="2026-01-31T01:30:00.412000Z",
        ended_at="2026-01-31T01:31:12.812000Z",
        documents=1731,
    )

    id: UUID
    fire_at: datetime
    by_hand: Annotated[str | None, AfterValidator(_who)]
    missed_since: datetime | None
    fired_at: datetime
    ended_at: datetime | None
    documents: int | None


class FiresAnswer(Answer):
    """A page of what a schedule has done, newest first. `next` is the `before` of the next page."""

    fires: list[FireAnswer]
    next: UUID | None


class ReportAnswer(Answer):
    """What the tenant had when the report was made, and how the runs stood then that were begun after `since` and until
    `until`, with the tokens that they had used."""

    model_config = like(
        id=_FIRE,
        since="2026-01-30T01:30:00Z",
        until=_NIGHT,
        made_at="2026-01-31T01:30:00.412000Z",
        documents=1731,
        size_bytes=4350003,
        queued=0,
        running=1,
        succeeded=118,
        failed=2,
        cancelled=0,
        input_tokens=95210,
        output_tokens=14022,
    )

    id: UUID
    since: datetime
    until: datetime
    made_at: datetime
    documents: int
    size_bytes: int
    queued: int
    running: int
    succeeded: int
    failed: int
    cancelled: int
    input_tokens: int
    output_tokens: int


class ReportsAnswer(Answer):
    """A page of reports, newest first. `next` is the `before` of the next page."""

    reports: list[ReportAnswer]
    next: UUID | None
