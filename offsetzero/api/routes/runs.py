"""Runs: how far the pipeline is with a document."""

from typing import Annotated
from uuid import UUID

from fastapi import APIRouter, Query

from offsetzero.api.described import errors
from offsetzero.api.models import RunAnswer, RunsAnswer
from offsetzero.api.problems import not_found
from offsetzero.api.services import Tenant, WithServices
from offsetzero.store import run_views
from offsetzero.store.runs import RunStatus

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
