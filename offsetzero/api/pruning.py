"""What is kept for a time only, and belongs to no other process, is removed by the API, now and then."""

import asyncio

import psycopg

from offsetzero import logs
from offsetzero.api.services import Services
from offsetzero.store import answers, chunk_results, webhooks

_PRUNE_SECONDS = 600.0

log = logs.get(__name__)


async def prune(services: Services) -> None:
    """Remove answers to requests, answers of models, and secrets, that have expired, until it is cancelled."""
    keep_seconds = services.settings.llm.keep_seconds
    while True:
        try:
            while await services.run(answers.prune()) == answers.AT_ONCE:
                pass
            while await services.run(chunk_results.prune(keep_seconds)) == chunk_results.AT_ONCE:
                pass
            await services.run(webhooks.forget_secrets())
        except psycopg.Error as error:
            log.warning("old answers not removed", error=str(error))
        await asyncio.sleep(_PRUNE_SECONDS)
