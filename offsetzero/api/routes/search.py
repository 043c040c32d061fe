"""Search over the text of documents."""

from typing import Annotated

from fastapi import APIRouter, Query

from offsetzero.api.described import errors
from offsetzero.api.models import HitAnswer, SearchAnswer
from offsetzero.api.problems import Problem
from offsetzero.api.services import Tenant, WithServices
from offsetzero.consumers.groups.documents.cleaning import clean_line
from offsetzero.store import index

router = APIRouter(tags=["search"])


@router.get(
    "/search",
    operation_id="search_documents",
    summary="Search in documents",
    responses=errors("empty-query", "invalid-request"),
)
async def search(
    tenant: Tenant,
    services: WithServices,
    q: Annotated[
        str, Query(max_length=500, description='Words, `"a phrase"`, `or`, `-without`', examples=["travel -train"])
    ],
    limit: Annotated[int, Query(ge=1, le=50)] = 10,
    offset: Annotated[int, Query(ge=0, le=1000)] = 0,
) -> SearchAnswer:
    """Documents that match, best first, each with a snippet of its best place."""
    query = clean_line(q)  # as the text was cleaned: a ligature or a soft hyphen must not hide a word
    if not query:
        raise Problem(422, "empty-query", "q is empty: name at least one word")
    hits = await services.read("indexer", index.search(tenant, query, limit=limit, offset=offset))
    return SearchAnswer(query=query, hits=[HitAnswer.model_validate(hit) for hit in hits])
