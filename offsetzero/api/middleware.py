"""Around every request, whoever answers it: measured, logged, and its body bounded."""

import re
import time
import uuid
from collections.abc import Callable
from dataclasses import dataclass

from starlette.exceptions import HTTPException
from starlette.types import ASGIApp, Message, Receive, Scope, Send
from structlog.contextvars import bound_contextvars, clear_contextvars

from offsetzero import logs, metrics, tracing
from offsetzero.tracing import Span

REQUEST_ID = "x-request-id"
_METHODS = frozenset({"GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS"})
PROBES = frozenset({"/healthz", "/readyz", "/metrics"})
"""Asked every few seconds: their lines are for DEBUG, and they are answered however much else is asked."""
_TRACE = (tracing.PARENT.encode(), tracing.STATE.encode())
_GIVEN = re.compile(rb"[A-Za-z0-9._-]{1,128}")

log = logs.get(__name__)


@dataclass(frozen=True, slots=True)
class Asked:
    """A request, as log lines and events of it know it."""

    span: Span

    def log_fields(self) -> dict[str, object]:
        """Its trace."""
        return self.span.log_fields()


class Observed:
    """ASGI middleware: one metric and one log line a request, at the end of its answer; an id for each request.

    The metric of a stream is the time to its beginning: an hour of them would hide how long answers take.

    The route is its template: one series a route, never one a document, and no text of a query in the log. An id
    that a proxy gives in `x-request-id` is kept, the answer carries it, and every line that is logged meanwhile
    has it as `request_id`. A request goes on with the trace of its `traceparent`, or begins one: so do the events that
    it publishes. The line has the run that it was about, and so has every line that is logged after that is known.
    """

    def __init__(self, app: ASGIApp, monotonic: Callable[[], float] = time.monotonic) -> None:
        self._app = app
        self._monotonic = monotonic

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        started = self._monotonic()
        status, began_after = 500, None
        request_id = _request_id(scope)
        scope.setdefault("state", {})["request_id"] = request_id

        async def watched(message: Message) -> None:
            nonlocal status, began_after
            if message["type"] == "http.response.start":
                status = message["status"]
                if _is_stream(message):
                    began_after = self._monotonic() - started
                message = {**message, "headers": [*message["headers"], (REQUEST_ID.encode(), request_id.encode())]}
            await send(message)

        clear_contextvars()  # a server may serve the next request of a connection in the same context
        token = logs.SUBJECT.set(Asked(_span(scope)))
        try:
            with bound_contextvars(request_id=request_id):
                try:
                    await self._app(scope, receive, watched)
                finally:
                    self._tell(scope, status, self._monotonic() - started, began_after)
        finally:
            logs.SUBJECT.reset(token)

    @staticmethod
    def _tell(scope: Scope, status: int, seconds: float, began_after: float | None) -> None:
        method = scope["method"] if scope["method"] in _METHODS else "other"
        route = getattr(scope.get("route"), "path_format", "unmatched")
        metrics.HTTP_SECONDS.labels(method, route, str(status)).observe(seconds if began_after is None else began_after)
        about = {"run_id": run_id} if (run_id := scope.get("path_params", {}).get("run_id")) else {}
        write = log.debug if route in PROBES and status < 400 else log.info
        write(
            "request",
            method=method,
            route=route,
            status=status,
            duration_ms=round(seconds * 1000, 1),
            tenant_id=scope["state"].get("tenant_id"),
            **about,
        )


class Bounded:
    """ASGI middleware: no body but an upload's is larger than `limit` bytes, before anybody has shown a key.

    The framework reads a JSON body whole before it looks at the key; uploads have their own, streamed limit.
    """

    def __init__(self, app: ASGIApp, limit: int, uploads: str) -> None:
        self._app = app
        self._limit = limit
        self._uploads = uploads

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http" or scope["path"] == self._uploads:
            await self._app(scope, receive, send)
            return
        received = 0

        async def counted() -> Message:
            nonlocal received
            message = await receive()
            received += len(message.get("body", b""))
            if received > self._limit:
                raise HTTPException(413, f"the body is larger than {self._limit} bytes")
            return message

        await self._app(scope, counted, send)


def _span(scope: Scope) -> Span:
    given = {name: value.decode("latin-1") for name, value in scope["headers"] if name in _TRACE}
    came = tracing.read(given.get(_TRACE[0]), given.get(_TRACE[1]))
    return came.next() if came is not None else tracing.begin()


def _is_stream(message: Message) -> bool:
    return any(name == b"content-type" and value.startswith(b"text/event-stream") for name, value in message["headers"])


def _request_id(scope: Scope) -> str:
    for name, value in scope["headers"]:
        if name == REQUEST_ID.encode() and _GIVEN.fullmatch(value):
            return str(value, "ascii")
    return uuid.uuid4().hex
