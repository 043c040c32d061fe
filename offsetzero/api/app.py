"""The composition root of the API: settings in, an ASGI app out."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from importlib.metadata import version

from fastapi import FastAPI

from offsetzero.api import problems, pruning
from offsetzero.api.admission import Admitted
from offsetzero.api.described import DescribedApi
from offsetzero.api.limits import TenantLimits
from offsetzero.api.meaning import Meanings
from offsetzero.api.middleware import Bounded, Observed
from offsetzero.api.routes import catalogue, documents, operations, runs, schedules, search, usage, webhooks
from offsetzero.api.run_feeds import RunFeeds
from offsetzero.api.services import Services
from offsetzero.settings import Settings
from offsetzero.store.database import async_pool
from offsetzero.store.objects import Objects

MAX_JSON_BYTES = 64 * 1024
UPLOADS = "/documents"
_DATABASE_SECONDS = 5.0  # that a request waits for the database before it is answered 503
_QUEUE_SECONDS = 15.0  # the same while others are given connections
_WAITING = 2_000  # requests that wait for one: more than a process serves within that time; each may hold a megabyte


def create_app(settings: Settings) -> FastAPI:
    """The API of one process.

    It starts without its database and answers 503 until that is there. It needs no Kafka: events go through
    the outbox.
    """

    @asynccontextmanager
    async def lifespan(app: FastAPI) -> AsyncIterator[None]:
        limits = TenantLimits(settings.api.requests_per_second, settings.api.burst)
        tries = TenantLimits(webhooks.TRIES_PER_SECOND, webhooks.TRIES_AT_ONCE)
        async with (
            async_pool(
                settings,
                settings.api.pool_size,
                name="offsetzero-api",
                timeout=_DATABASE_SECONDS,
                waiting=_WAITING,
                patience=_QUEUE_SECONDS,
            ) as pool,
            RunFeeds(pool, settings.api.keep_event_seconds, settings.api.streams).running() as feeds,
            Meanings(settings).running() as meanings,
        ):
            app.state.services = Services(settings, pool, Objects(settings.objects), limits, tries, feeds, meanings)
            pruned = asyncio.create_task(pruning.prune(app.state.services), name="prune")
            try:
                yield
            finally:
                pruned.cancel()
                with suppress(asyncio.CancelledError):
                    await pruned

    app = DescribedApi(
        title="offsetzero",
        version=version("offsetzero"),
        summary="Documents in, events out: upload, follow the run, search, be notified.",
        lifespan=lifespan,
        # No /docs: the page would load scripts from a CDN, which fails offline, and people would type keys into it.
        docs_url=None,
        redoc_url=None,
    )
    app.add_middleware(Bounded, limit=MAX_JSON_BYTES, uploads=UPLOADS)
    app.add_middleware(Observed)
    app.add_middleware(Admitted, most=settings.api.requests_at_once, uploads=UPLOADS)
    problems.install(app)
    for module in (documents, catalogue, runs, search, usage, webhooks, schedules, operations):
        app.include_router(module.router)
    return app
