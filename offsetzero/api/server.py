"""The HTTP server of the API: uvicorn, which lets streams end when the process is asked to."""

import socket

import uvicorn
from fastapi import FastAPI

GRACE_SECONDS = 10
"""That requests have to end when the process is asked to."""
KEEP_SECONDS = 75
"""That a connection without a request is kept open: longer than clients and proxies keep theirs (many for 60 s), or
they would send a request on one that is just being closed, which must not be sent again blindly."""


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
