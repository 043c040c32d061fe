"""Runs: how far the pipeline is with a document."""

from typing import Annotated
from uuid import UUID

from fastapi import APIRouter, Query, Response

from offsetzero.api import idempotency
from offsetzero.api.described import errors
from offsetzero.api.idempotency import MayRepeat, Once, answer_of
from offsetzero.api.models import RunAnswer, RunsAnswer
from offsetzero.api.problems import Problem, not_found
from offsetzero.api.services import Tenant, WithServices
from offsetzero.producers import outbox
from offsetzero.schemas.runs import RunCancelled
from offsetzero.store import run_views, runs
from offsetzero.store.database import AsyncConnection
from offsetzero.store.run_states import RunStatus
from offsetzero.store.run_views import RunView
from offsetzero.store.script import Script, arun

router = APIRouter(tags=["runs"])


@router.get(
    "/runs/{run_id}", operation_id="get_run", summary="Read a run", responses=errors("not-found", "invalid-request")
)
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
    responses=errors("not-found", "invalid-request", "run-ended", *idempotency.CODES),
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

    return await once.do("", work)


def _cancel(once: Once, run_id: UUID) -> Script[RunView | None]:
    ended = yield from runs.cancel(once.tenant_id, run_id)
    if ended is not None:
        event = RunCancelled(
            run_id=run_id, tenant_id=ended.tenant_id, document_id=ended.document_id, finished_at=ended.finished_at
        )
        yield from outbox.record(event, source=once.services.settings.source)
    return (yield from run_views.find(once.tenant_id, run_id))


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
