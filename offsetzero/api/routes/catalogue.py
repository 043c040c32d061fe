"""The catalogue: what a tenant has, as the projection of the group `catalogue` knows it."""

from typing import Annotated
from uuid import UUID

from fastapi import APIRouter, Query

from offsetzero.api.described import errors
from offsetzero.api.models import CatalogueAnswer, ListedAnswer
from offsetzero.api.parameters import ExactRoute
from offsetzero.api.problems import Problem
from offsetzero.api.services import Tenant, WithServices
from offsetzero.errors import ConfigurationError
from offsetzero.store import catalogue

router = APIRouter(tags=["documents"], route_class=ExactRoute)


@router.get(
    "/catalogue",
    operation_id="get_catalogue",
    summary="Count and list documents",
    responses=errors("catalogue-unavailable"),
)
async def read(
    tenant: Tenant,
    services: WithServices,
    limit: Annotated[int, Query(ge=1, le=200)] = 50,
    before: UUID | None = None,
) -> CatalogueAnswer:
    """How many documents there are, their bytes, and a page of them, newest first.

    `before` continues after the last document of the page before.
    """
    try:
        found = await services.read("catalogue", catalogue.of_tenant(tenant, limit=limit + 1, before=before))
    except ConfigurationError as error:
        detail = "the group catalogue has never run: `offsetzero groups run catalogue` starts it"
        raise Problem(503, "catalogue-unavailable", detail) from error
    shown = [ListedAnswer.model_validate(one) for one in found.listed[:limit]]
    return CatalogueAnswer(
        count=found.documents,
        size_bytes=found.bytes,
        documents=shown,
        next=shown[-1].document_id if len(found.listed) > limit else None,
    )
