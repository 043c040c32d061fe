"""Measures and logs every request, whoever answers it."""

import re
import time
import uuid
from collections.abc import Callable

from starlette.types import ASGIApp, Message, Receive, Scope, Send
from structlog.contextvars import bound_contextvars

from offsetzero import logs, metrics

REQUEST_ID = "x-request-id"
_METHODS = frozenset({"GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS"})
_PROBES = frozenset({"/healthz", "/readyz", "/metrics"})  # asked every few seconds: their lines are for DEBUG
_GIVEN = re.compile(rb"[A-Za-z0-9._-]{1,128}")

log = logs.get(__name__)


class Observed:
    """ASGI middleware: one metric and one log line a request, at the end of its answer; an id for each request.

    The route is its template: one series a route, never one a document, and no text of a query in the log. An id
    that a proxy gives in `x-request-id` is kept, the answer carries it, and every line that is logged meanwhile
    has it as `request_id`.
    """

    def __init__(self, app: ASGIApp, monotonic: Callable[[], float] = time.monotonic) -> None:
        self._app = app
        self._monotonic = monotonic

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        started = self._monotonic()
        status = 500
        request_id = _request_id(scope)
        scope.setdefault("state", {})["request_id"] = request_id

        async def watched(message: Message) -> None:
            nonlocal status
            if message["type"] == "http.response.start":
                status = message["status"]
                message = {**message, "headers": [*message["headers"], (REQUEST_ID.encode(), request_id.encode())]}
            await send(message)

        with bound_contextvars(request_id=request_id):
            try:
                await self._app(scope, receive, watched)
            finally:
                self._tell(scope, status, self._monotonic() - started)

    @staticmethod
    def _tell(scope: Scope, status: int, seconds: float) -> None:
        method = scope["method"] if scope["method"] in _METHODS else "other"
        route = getattr(scope.get("route"), "path_format", "unmatched")
        metrics.HTTP_SECONDS.labels(method, route, str(status)).observe(seconds)
        write = log.debug if route in _PROBES and status < 400 else log.info
        write(
            "request",
            method=method,
            route=route,
            status=status,
            duration_ms=round(seconds * 1000, 1),
            tenant_id=scope["state"].get("tenant_id"),
        )


def _request_id(scope: Scope) -> str:
    for name, value in scope["headers"]:
        if name == REQUEST_ID.encode() and _GIVEN.fullmatch(value):
            return str(value, "ascii")
    return uuid.uuid4().hex
