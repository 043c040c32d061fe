"""Schedules: what a tenant has done again and again; and the reports that they make."""

from typing import Annotated, TypeVar
from uuid import UUID

from fastapi import APIRouter, Query, Request, Response

from offsetzero.api import idempotency
from offsetzero.api.described import errors
from offsetzero.api.idempotency import MayRepeat, answer_of
from offsetzero.api.parameters import ExactRoute
from offsetzero.api.problems import Problem, not_found
from offsetzero.api.schedule_models import (
    KEY,
    FireAnswer,
    FiresAnswer,
    ReportAnswer,
    ReportsAnswer,
    ScheduleAnswer,
    ScheduleChange,
    ScheduleRequest,
    SchedulesAnswer,
)
from offsetzero.api.services import Tenant, WithServices
from offsetzero.errors import ConfigurationError, TopicError
from offsetzero.producers.schedules import desk
from offsetzero.schemas.event import event_types
from offsetzero.store import fires, reports, schedules
from offsetzero.store.database import AsyncConnection
from offsetzero.store.schedules import Kind, Schedule
from offsetzero.store.script import Script, arun
from offsetzero.topics.catalogue import topic_of

T = TypeVar("T")
router = APIRouter(tags=["schedules"], route_class=ExactRoute)

MOST = 50
"""Schedules of one tenant."""
Limit = Annotated[int, Query(ge=1, le=200)]


@router.post(
    "/schedules",
    status_code=201,
    operation_id="create_schedule",
    summary="Do something again and again",
    responses=errors(
        "malformed-body",
        "too-large",
        "too-many-schedules",
        "name-taken",
        "not-json",
        "schedule-refused",
        "unknown-event-type",
        *idempotency.CODES,
    ),
    response_model=ScheduleAnswer,
)
async def add(body: ScheduleRequest, request: Request, once: MayRepeat, services: WithServices) -> Response:
    """From now on: re-index the tenant's documents, report on them, or publish an event of the service's own types."""
    if body.kind is Kind.EVENT:
        _check_type(body.event_type)
    try:
        made = desk.new(
            body.name,
            body.kind,
            body.cron,
            zone=body.zone,
            catch_up=body.catch_up,
            tenant_id=once.tenant_id,
            event_type=body.event_type,
            payload=body.payload,
            at=await services.run(schedules.now()),
        )
    except ConfigurationError as error:
        raise Problem(422, "schedule-refused", "; ".join(error.problems)) from error

    async def work(connection: AsyncConnection) -> Response:
        if not await arun(connection, desk.add(made, _who(request), most=MOST)):
            if await arun(connection, schedules.is_taken(once.tenant_id, made.name)):
                raise Problem(409, "name-taken", f"there is a schedule {made.name} already")
            raise Problem(409, "too-many-schedules", f"there are {MOST} schedules already; delete one first")
        return answer_of(ScheduleAnswer.model_validate(made), 201)

    return await once.do(body.model_dump_json(), work)


@router.get("/schedules", operation_id="list_schedules", summary="List schedules", responses=errors("invalid-request"))
async def page(
    tenant: Tenant, services: WithServices, limit: Limit = 50, before: UUID | None = None
) -> SchedulesAnswer:
    """The tenant's schedules, newest first; `before` continues after the last one of the page before."""
    found = await services.run(schedules.page(tenant, limit=limit + 1, before=before))
    shown = [_answer(one) for one in found[:limit]]
    return SchedulesAnswer(schedules=shown, next=shown[-1].id if len(found) > limit else None)


@router.get(
    "/schedules/{schedule_id}",
    operation_id="get_schedule",
    summary="Read a schedule",
    responses=errors("not-found"),
)
async def read(schedule_id: UUID, tenant: Tenant, services: WithServices) -> ScheduleAnswer:
    """A schedule, with the time at which it fires next."""
    return _answer(_found(await services.run(schedules.find(tenant, schedule_id))))


@router.patch(
    "/schedules/{schedule_id}",
    operation_id="update_schedule",
    summary="Pause or resume a schedule",
    responses=errors("malformed-body", "not-found", "too-large", "not-json", "schedule-refused"),
)
async def change(
    schedule_id: UUID, body: ScheduleChange, request: Request, tenant: Tenant, services: WithServices
) -> ScheduleAnswer:
    """Paused, it does not fire, and a re-index under way waits. Resumed, it goes on from now."""
    act = desk.pause if body.paused else desk.resume
    try:
        async with services.scheduling():
            changed = await services.run(_if_its(tenant, schedule_id, act(schedule_id, _who(request))))
    except ConfigurationError as error:  # its zone is not known any more
        raise Problem(422, "schedule-refused", "; ".join(error.problems)) from error
    return _answer(_found(changed))


@router.post(
    "/schedules/{schedule_id}/run",
    status_code=202,
    operation_id="run_schedule",
    summary="Do now what a schedule is for",
    responses=errors("not-found", "idempotency-key-needed", *idempotency.CODES),
    response_model=FireAnswer,
)
async def run_now(schedule_id: UUID, request: Request, once: MayRepeat) -> Response:
    """Now, also while it is paused; its own fire times stay as they are. Needs an `Idempotency-Key`."""
    idempotency.needed(once)

    async def work(connection: AsyncConnection) -> Response:
        asked = desk.run_now(schedule_id, _who(request), once.services.settings)
        fire_id = _found(await arun(connection, _if_its(once.tenant_id, schedule_id, asked)))
        return answer_of(FireAnswer.model_validate(await arun(connection, fires.find(fire_id))), 202)

    async with once.services.scheduling():
        return await once.do("", work)


@router.get(
    "/schedules/{schedule_id}/fires",
    operation_id="list_fires",
    summary="List what a schedule has done",
    responses=errors("not-found"),
)
async def list_fires(
    schedule_id: UUID, tenant: Tenant, services: WithServices, limit: Limit = 50, before: UUID | None = None
) -> FiresAnswer:
    """What was done at its fire times in the last 90 days, newest first."""
    _found(await services.run(schedules.find(tenant, schedule_id)))
    found = await services.run(fires.page(schedule_id, limit=limit + 1, before=before))
    shown = [FireAnswer.model_validate(one) for one in found[:limit]]
    return FiresAnswer(fires=shown, next=shown[-1].id if len(found) > limit else None)


@router.delete(
    "/schedules/{schedule_id}",
    status_code=204,
    operation_id="delete_schedule",
    summary="End a schedule",
    responses=errors("not-found"),
)
async def remove(schedule_id: UUID, request: Request, tenant: Tenant, services: WithServices) -> None:
    """It fires no more, and a re-index under way ends behind its page. Its reports stay."""
    async with services.scheduling():
        is_removed = await services.run(_if_its(tenant, schedule_id, desk.remove(schedule_id, _who(request))))
    if not is_removed:
        raise not_found("schedule")


@router.get("/reports", operation_id="list_reports", summary="List reports", responses=errors("invalid-request"))
async def list_reports(
    tenant: Tenant, services: WithServices, limit: Limit = 50, before: UUID | None = None
) -> ReportsAnswer:
    """What schedules of the tenant, and those of operators for all tenants, have counted, newest first."""
    found = await services.run(reports.page(tenant, limit=limit + 1, before=before))
    shown = [ReportAnswer.model_validate(one) for one in found[:limit]]
    return ReportsAnswer(reports=shown, next=shown[-1].id if len(found) > limit else None)


def _if_its(tenant: str, schedule_id: UUID, act: Script[T]) -> Script[T | None]:
    """What is done to a tenant's schedule; None when it has none of that id."""
    if (yield from schedules.find(tenant, schedule_id)) is None:
        act.close()
        return None
    return (yield from act)


def _found(item: T | None) -> T:
    if item is None:
        raise not_found("schedule")
    return item


def _answer(schedule: Schedule) -> ScheduleAnswer:
    shown = ScheduleAnswer.model_validate(schedule)
    return shown if schedule.paused_at is None else shown.model_copy(update={"next_at": None})


def _who(request: Request) -> str:
    return f"{KEY}{request.state.key_id}"


def _check_type(event_type: str | None) -> None:
    """A tenant publishes events of the service, not ours, which say what has happened to documents and runs.

    Raises:
        Problem: 422.
    """
    known = [name for name, model in event_types().items() if _is_of_the_service(name, model.__module__)]
    if event_type is not None and event_type not in known:
        there_are = f"there are {', '.join(sorted(known))}" if known else "this service has none of its own"
        raise Problem(422, "unknown-event-type", f"no such event type: {event_type}; {there_are}")


def _is_of_the_service(event_type: str, module: str) -> bool:
    try:
        topic_of(event_type)
    except TopicError:
        return False
    return not module.startswith("offsetzero.")
