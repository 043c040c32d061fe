"""Runs: how far the pipeline is with a document."""

from typing import Annotated, Any
from uuid import UUID

from fastapi import APIRouter, Header, Query, Response
from fastapi.responses import StreamingResponse

from offsetzero.api import idempotency, run_stream
from offsetzero.api.described import errors
from offsetzero.api.event_stream import EventStream
from offsetzero.api.idempotency import MayRepeat, Once, answer_of
from offsetzero.api.models import RunAnswer, RunsAnswer
from offsetzero.api.parameters import ExactRoute
from offsetzero.api.problems import Problem, not_found
from offsetzero.api.services import Tenant, WithServices
from offsetzero.producers import outbox
from offsetzero.schemas.runs import RunCancelled
from offsetzero.store import run_events, run_views, runs
from offsetzero.store.database import AsyncConnection
from offsetzero.store.run_states import RunStatus
from offsetzero.store.run_views import RunView
from offsetzero.store.script import Script, arun

router = APIRouter(tags=["runs"], route_class=ExactRoute)

# Of each event of a stream, as OpenAPI 3.2 describes them.
_EVENT: dict[str, Any] = {
    "type": "object",
    "properties": {
        "event": {"type": "string", "enum": ["run", "step", "resync"]},
        "data": {"type": "string", "contentMediaType": "application/json"},
        "id": {"type": "string"},
    },
    "required": ["event", "data", "id"],
}


@router.get("/runs/{run_id}", operation_id="get_run", summary="Read a run", responses=errors("not-found"))
async def read(run_id: UUID, tenant: Tenant, services: WithServices) -> RunAnswer:
    """A run with its steps."""
    found = await services.run(run_views.find(tenant, run_id))
    if found is None:
        raise not_found("run")
    return RunAnswer.model_validate(found)


@router.post(
    "/runs/{run_id}/cancel",
    operation_id="cancel_run",
    summary="Cancel a run",
    responses=errors("not-found", "run-ended", *idempotency.CODES),
    response_model=RunAnswer,
)
async def cancel(run_id: UUID, once: MayRepeat) -> Response:
    """Cancel a run that has not ended: it and its steps are `cancelled` when this answers, and stay so.

    A call of a provider that is made for it ends within a second. What its groups have made of the document before
    stays. A run that is cancelled already is answered as it is.
    """

    async def work(connection: AsyncConnection) -> Response:
        found = await arun(connection, _cancel(once, run_id))
        if found is None:
            raise not_found("run")
        if found.status is not RunStatus.CANCELLED:
            raise Problem(409, "run-ended", f"the run has {found.status}; it cannot be cancelled any more")
        return answer_of(RunAnswer.model_validate(found), 200)

    return await once.do("", work, run_id=run_id)


def _cancel(once: Once, run_id: UUID) -> Script[RunView | None]:
    ended = yield from runs.cancel(once.tenant_id, run_id)
    if ended is not None:
        event = RunCancelled(
            run_id=run_id, tenant_id=ended.tenant_id, document_id=ended.document_id, finished_at=ended.finished_at
        )
        yield from outbox.record(event, source=once.services.settings.source)
    return (yield from run_views.find(once.tenant_id, run_id))


@router.get(
    "/runs/{run_id}/events",
    operation_id="list_events",
    summary="Follow a run",
    response_class=StreamingResponse,
    responses={
        200: {
            "description": "Server-sent events: `run`, `step` and `resync`, until the run is over",
            "content": {"text/event-stream": {"itemSchema": _EVENT}},
        },
        204: {"description": "The run is over, and the client knows all of it: it need not come again"},
        **errors("not-found", "too-many-streams"),
    },
)
async def follow(
    run_id: UUID,
    tenant: Tenant,
    services: WithServices,
    last_event_id: Annotated[str | None, Header(description="The last event that the client knows.")] = None,
) -> Response:
    """What has become of the run so far, then each change when it is made. After `Last-Event-ID` the stream goes on.

    Events are numbered from 1 without a gap. When those after `Last-Event-ID` are no longer kept, the first one is
    `resync`, with the run as `GET /runs/{run_id}` shows it. A comment comes after every 15 s of silence.
    """

    async def look(after: int | None) -> run_events.Since | None:
        return await services.look(run_events.since(tenant, run_id, after))

    start = await look(run_stream.last_event(last_event_id))
    if start is None:
        raise not_found("run")
    if start.over and start.is_nothing:
        return Response(status_code=204)  # an EventSource would come again for ever otherwise
    if services.feeds.is_full(tenant):
        detail = f"the tenant has {services.settings.api.streams} streams open already; close some first"
        raise Problem(429, "too-many-streams", detail, headers={"Retry-After": "15"})
    return EventStream(run_stream.stream(tenant, run_id, services.feeds, start, look))


@router.get("/runs", operation_id="list_runs", summary="List runs", responses=errors("invalid-request"))
async def page(
    tenant: Tenant,
    services: WithServices,
    limit: Annotated[int, Query(ge=1, le=200)] = 50,
    before: UUID | None = None,
    status: RunStatus | None = None,
    document_id: UUID | None = None,
) -> RunsAnswer:
    """Runs, newest first; `before` continues after the last run of the page before."""
    found = await services.run(
        run_views.page(tenant, limit=limit + 1, before=before, status=status, document_id=document_id)
    )
    shown = [RunAnswer.model_validate(run) for run in found[:limit]]
    return RunsAnswer(runs=shown, next=shown[-1].run_id if len(found) > limit else None)
