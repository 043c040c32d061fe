"""Search over the text of documents, by words and by meaning."""

from typing import Annotated

from fastapi import APIRouter, Query

from offsetzero import metrics
from offsetzero.api.described import errors
from offsetzero.api.meaning import ANOTHER_MODEL, NOT_CONFIGURED, LeftOut
from offsetzero.api.models import HitAnswer, SearchAnswer
from offsetzero.api.parameters import ExactRoute
from offsetzero.api.problems import Problem
from offsetzero.api.services import Services, Tenant, WithServices
from offsetzero.consumers.groups.documents.cleaning import clean_line
from offsetzero.store import index
from offsetzero.store import search as searching
from offsetzero.store.search import Meaning, Method

router = APIRouter(tags=["search"], route_class=ExactRoute)


@router.get(
    "/search",
    operation_id="search_documents",
    summary="Search in documents",
    responses=errors("empty-query"),
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
    """Documents that match, best first, each with a snippet of its best place.

    Where the index has vectors, documents count, too, whose text is near to what the query means.
    """
    query = clean_line(q)  # as the text was cleaned: a ligature or a soft hyphen must not hide a word
    if not query:
        raise Problem(422, "empty-query", "q is empty: name at least one word")
    meaning, left_out = await _meaning(query, tenant, services)
    found = await services.read(
        index.GROUP, searching.search(tenant, query, limit=limit, offset=offset, meaning=meaning)
    )
    if found.model is None or searching.is_literal(query):
        left_out = None  # nothing was there to be left out
    elif found.method is Method.WORDS and left_out is None:
        left_out = ANOTHER_MODEL
    metrics.SEARCHES.labels(found.method.value, left_out or "").inc()
    hits = [HitAnswer.model_validate(hit) for hit in found.hits]
    return SearchAnswer(query=query, method=found.method, left_out=left_out, hits=hits)


async def _meaning(query: str, tenant: str, services: Services) -> tuple[Meaning | None, str | None]:
    """The vector of a query by the model of the generation that is read, or why there is none.

    Outside of the transaction that searches: no connection waits for the endpoint.
    """
    if not services.meanings.is_configured:
        return None, NOT_CONFIGURED
    if searching.is_literal(query) or (model := await services.read(index.GROUP, searching.model())) is None:
        return None, None
    got = await services.meanings.of(query, model, tenant)
    return (None, got.reason) if isinstance(got, LeftOut) else (got, None)
