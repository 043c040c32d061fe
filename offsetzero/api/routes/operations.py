"""For the operator: is it alive, can it work, what does it measure."""

import psycopg
from fastapi import APIRouter, Response
from fastapi.responses import JSONResponse
from prometheus_client import CONTENT_TYPE_LATEST, generate_latest

from offsetzero.api.problems import Problem
from offsetzero.api.services import WithServices

router = APIRouter(tags=["operations"], include_in_schema=False)

_READY_SECONDS = 2.0


@router.get("/healthz")
async def healthz() -> JSONResponse:
    """The process answers; nothing else is asked."""
    return JSONResponse({"status": "ok"})


@router.get("/readyz")
async def readyz(services: WithServices) -> JSONResponse:
    """PostgreSQL answers too. Kafka may be away: the outbox keeps events until it is back."""
    try:
        async with services.pool.connection(timeout=_READY_SECONDS) as connection:
            await connection.execute("SELECT 1 FROM api_keys LIMIT 0")
    except psycopg.Error as error:
        detail = f"the database cannot be used: {type(error).__name__}"
        raise Problem(503, "not-ready", detail) from error
    return JSONResponse({"status": "ready"})


@router.get("/metrics")
async def metrics() -> Response:
    """The metrics of this process."""
    return Response(generate_latest(), media_type=CONTENT_TYPE_LATEST)
