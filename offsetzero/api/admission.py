"""How many requests are worked on at once: who comes beyond is refused at once, not answered late."""

import time
from collections.abc import Callable

from starlette.types import ASGIApp, Message, Receive, Scope, Send

from offsetzero import logs, metrics
from offsetzero.api.middleware import PROBES
from offsetzero.api.problems import Problem

_TOLD_SECONDS = 1.0  # between two lines of the log about it

log = logs.get(__name__)


class Admitted:
    """ASGI middleware, around all others: what a request waits is the work of those before it (Little's law), so that
    their number bounds it. A refusal costs nothing of what a request does, and its body is not read.

    Uploads, and all other requests, are counted apart: a spike of the ones leaves the others answered. Who waits for
    its client's body is not counted, nor are streams and probes.

    Args:
        app: what is around.
        most: requests of either kind that are worked on at once.
        uploads: the path that they are sent to.
        monotonic: the clock, in seconds.
    """

    def __init__(self, app: ASGIApp, most: int, uploads: str, monotonic: Callable[[], float] = time.monotonic) -> None:
        self._app = app
        self._most = most
        self._uploads = uploads
        self._monotonic = monotonic
        self._at_work = {"upload": 0, "other": 0}
        self._told = float("-inf")
        detail = "more requests wait than are answered in time; try again"
        self._refusal = Problem(503, "overloaded", detail, headers={"Retry-After": "1"}).response()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http" or scope["path"] in PROBES or scope["path"].endswith("/events"):
            await self._app(scope, receive, send)
            return
        kind = "upload" if scope["path"] == self._uploads else "other"
        if self._at_work[kind] >= self._most:
            self._tell(kind)
            await self._refusal(scope, receive, send)
            return

        async def received() -> Message:
            self._count(kind, -1)
            try:
                return await receive()
            finally:
                self._count(kind, 1)

        self._count(kind, 1)
        try:
            await self._app(scope, received, send)
        finally:
            self._count(kind, -1)

    def _count(self, kind: str, more: int) -> None:
        self._at_work[kind] += more
        metrics.HTTP_AT_WORK.labels(kind).set(self._at_work[kind])

    def _tell(self, kind: str) -> None:
        metrics.HTTP_REFUSED.labels(kind).inc()
        if (now := self._monotonic()) - self._told >= _TOLD_SECONDS:
            self._told = now
            log.warning("more is asked than is answered in time: refused", kind=kind, at_once=self._most)
