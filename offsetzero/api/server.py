"""The HTTP server of the API: uvicorn, which lets streams end when the process is asked to."""

import socket

import uvicorn
from fastapi import FastAPI
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

GRACE_SECONDS = 10
"""That requests have to end when the process is asked to."""
KEEP_SECONDS = 75
"""That a connection without a request is kept open: longer than clients and proxies keep theirs (many for 60 s), or
they would send a request on one that is just being closed, which must not be sent again blindly."""
HEAD_BYTES = 64 * 1024
"""Of a request's line and headers, and of what else is no body: whoever sends more is sent away."""


class BoundedHttp(HttpToolsProtocol):
    """Speaks HTTP by a parser in C, which would keep a head of any length: a gigabyte, before any key is shown."""

    _no_body = 0

    def data_received(self, data: bytes) -> None:
        """Parse what has come, but for one read no more than `HEAD_BYTES` in a row that are no body."""
        self._no_body += len(data)
        super().data_received(data)
        if self._no_body > HEAD_BYTES and not self.transport.is_closing():
            self.send_400_response("The head of the request is too large.")

    def on_message_begin(self) -> None:
        """Of a request the first byte has come."""
        self._no_body = 0
        super().on_message_begin()

    def on_headers_complete(self) -> None:
        """Its head has."""
        self._no_body = 0
        super().on_headers_complete()

    def on_body(self, body: bytes) -> None:
        """Some of its body has."""
        self._no_body = 0
        super().on_body(body)


class Server(uvicorn.Server):
    """Serves an app of `create_app`.

    Args:
        app: the app.
        more: further settings of uvicorn.
    """

    def __init__(self, app: FastAPI, **more: str | int) -> None:
        self._app = app
        super().__init__(
            uvicorn.Config(
                app,
                http=BoundedHttp,
                log_config=None,
                access_log=False,
                server_header=False,
                timeout_graceful_shutdown=GRACE_SECONDS,
                timeout_keep_alive=KEEP_SECONDS,
                **more,  # type: ignore[arg-type]
            )
        )

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        """End in order: streams would go on until the time is over, for uvicorn knows only answers that end."""
        self._app.state.services.feeds.end()
        await super().shutdown(sockets)
