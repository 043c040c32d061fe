"""What a query of `GET /search` means, as a vector: asked of the endpoint in little time, or left out with a reason."""

import asyncio
import threading
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass
from uuid import uuid4

import httpx

from offsetzero import logs
from offsetzero.clock import SYSTEM
from offsetzero.consumers.groups.embeddings import QUERIES, ask, read
from offsetzero.consumers.groups.model_endpoint import ModelEndpoint
from offsetzero.errors import FailedHandling, ProviderWaits
from offsetzero.retry.breaker import Caller
from offsetzero.retry.classify import classify
from offsetzero.retry.keeper import Keeper
from offsetzero.retry.protection import Limits
from offsetzero.retry.provider_calls import ProviderCall
from offsetzero.retry.provider_stores import SharedStore
from offsetzero.settings import Settings
from offsetzero.store.database import pool
from offsetzero.store.embeddings import Model
from offsetzero.store.search import Meaning

NOT_CONFIGURED, WAITS, ANOTHER_MODEL = "no-endpoint", "provider", "generation-changed"
"""Why meaning is left out, besides the reasons of failed calls: nobody may be asked, or not now; or the generation that
is read has changed while it was asked."""
_TURN_SECONDS = 0.5  # for a free call

log = logs.get(__name__)


@dataclass(frozen=True, slots=True)
class LeftOut:
    """There is no vector for a query: a reason for programs, as failures of runs have."""

    reason: str


class Meanings:
    """Gives queries their vectors, for all requests of a process; `running` starts and ends it.

    Its calls are limited and watched as those of groups are, under a name of their own: a rebuild, which has the
    endpoint busy for hours, does not take the meaning from searches.

    Args:
        settings: of the process.
    """

    def __init__(self, settings: Settings) -> None:
        self._settings = settings
        self._endpoint: ModelEndpoint | None = None
        self._keeper: Keeper | None = None

    @property
    def is_configured(self) -> bool:
        """Whether there is an endpoint."""
        return bool(self._settings.embeddings.base_url)

    @asynccontextmanager
    async def running(self) -> AsyncIterator["Meanings"]:
        """Start it; with the block it ends."""
        if not self.is_configured:
            yield self
            return
        seconds = self._settings.embeddings.query_timeout
        times = dict.fromkeys(("connect_timeout", "write_timeout", "read_timeout", "total_timeout"), seconds)
        connections = pool(self._settings, 1, name="offsetzero-api-providers")
        try:
            self._keeper = Keeper(SharedStore(connections), self._limits, SYSTEM, _thread, _crashed)
            async with ModelEndpoint(self._settings.embeddings.model_copy(update=times)) as self._endpoint:
                yield self
        finally:
            if self._keeper is not None:
                await asyncio.to_thread(self._keeper.close)
            await asyncio.to_thread(connections.close)

    async def of(self, query: str, model: Model, tenant_id: str) -> Meaning | LeftOut:
        """The vector of a query by a model, within a time and whatever the endpoint does.

        Args:
            query: cleaned, not empty.
            model: of the generation that is searched.
            tenant_id: who asks.
        """
        if self._endpoint is None or self._keeper is None:
            return LeftOut(NOT_CONFIGURED)
        settings = self._settings.embeddings
        key = uuid4().hex
        call = ProviderCall(self._keeper, QUERIES, Caller(key, tenant_id), lambda _name, _wait: None, patient=False)
        try:
            async with asyncio.timeout(_TURN_SECONDS) as time, call:
                # The call has a time-out of its own, which counts as a failure of the endpoint; this one never does.
                time.reschedule(asyncio.get_running_loop().time() + settings.query_timeout + _TURN_SECONDS)
                answer = await ask(self._endpoint, [query], model, shorten=settings.shorten, idempotency_key=key)
                (vector,) = read(answer, 1, model)
        except (TimeoutError, ProviderWaits):
            return LeftOut(WAITS)
        except (httpx.HTTPError, FailedHandling) as error:
            return LeftOut(classify(error).reason)
        return Meaning(model, vector, settings.min_similarity)

    def _limits(self, name: str) -> Limits:
        return Limits.of(self._settings.providers, name)


def _thread(run: Callable[[], None], name: str) -> threading.Thread:
    return threading.Thread(target=run, name=name, daemon=True)


def _crashed(error: BaseException) -> None:
    log.error("providers cannot be asked for any more: searches are by words alone", exc_info=error)
