"""Server-sent events over HTTP: what goes on the wire, and a response that a client cannot hold for ever.

The text is FastAPI's. `sse-starlette` is not used: it patches uvicorn when it is imported, knows the end of the process
by a global that stays set, and logs each client that is gone with a traceback.
"""

import asyncio
from collections.abc import AsyncGenerator

from fastapi.responses import StreamingResponse
from fastapi.sse import format_sse_event
from starlette.types import Message, Receive, Scope, Send

from offsetzero import logs

HEARTBEAT_SECONDS = 15.0
"""Of silence, until a comment shows that the stream lives: proxies close what is silent, and dead clients are found."""
SEND_SECONDS = 25.0
"""That a client may take to read what was sent, before it is given up: with the heartbeat, within 45 s."""
COMMENT = b":\n\n"

log = logs.get(__name__)


def event(kind: str, number: int, data: str) -> bytes:
    """One event.

    Args:
        kind: what listeners of an EventSource are called by.
        number: what a client sends as `Last-Event-ID` when it comes again.
        data: JSON.
    """
    return format_sse_event(event=kind, id=str(number), data_str=data)


class _ClientStands(Exception):
    """The client reads nothing."""


class EventStream(StreamingResponse):
    """A stream of events. It ends with its content, with its client, or when that has read nothing for too long."""

    media_type = "text/event-stream"

    def __init__(self, content: AsyncGenerator[bytes]) -> None:
        # X-Accel-Buffering: nginx would keep events until it has some kilobytes of them.
        super().__init__(content, headers={"Cache-Control": "no-store", "X-Accel-Buffering": "no"})
        self._content = content

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve it (ASGI)."""

        async def timed(message: Message) -> None:
            try:
                async with asyncio.timeout(SEND_SECONDS):
                    await send(message)
            except TimeoutError as error:
                raise _ClientStands from error

        try:
            await super().__call__(scope, receive, timed)
        except _ClientStands:
            # Without an end of the answer: the server closes the connection.
            log.info("stream given up: its client reads nothing", path=scope["path"], seconds=SEND_SECONDS)
        finally:
            await self._content.aclose()
