"""A real HTTP server on this machine that answers as a test tells it."""

import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer


@dataclass(frozen=True)
class Received:
    """One request."""

    method: str
    path: str
    headers: Mapping[str, str]
    body: bytes


@dataclass(frozen=True)
class Reply:
    """One answer; `seconds_between_bytes` makes it drip."""

    status: int = 200
    body: bytes = b""
    headers: Mapping[str, str] = field(default_factory=dict)
    seconds_between_bytes: float = 0.0


class LocalHttp:
    """What was received, in order, and what is answered."""

    def __init__(self, answer: Callable[[Received], Reply]) -> None:
        self.answer = answer
        self.received: list[Received] = []
        self.url = ""


@contextmanager
def serve(answer: Callable[[Received], Reply] = lambda _received: Reply()) -> Iterator[LocalHttp]:
    """Serve on a free port of 127.0.0.1 until the block ends.

    Args:
        answer: called for each request, in a thread of its own.
    """
    local = LocalHttp(answer)

    class Handler(BaseHTTPRequestHandler):
        def _handle(self) -> None:
            length = int(self.headers.get("content-length") or 0)
            received = Received(
                self.command,
                self.path,
                {name.lower(): value for name, value in self.headers.items()},
                self.rfile.read(length),
            )
            local.received.append(received)
            reply = local.answer(received)
            try:
                self.send_response(reply.status)
                for name, value in reply.headers.items():
                    self.send_header(name, value)
                self.send_header("Content-Length", str(len(reply.body)))
                self.end_headers()
                if not reply.seconds_between_bytes:
                    self.wfile.write(reply.body)
                    return
                for byte in reply.body:
                    self.wfile.write(bytes([byte]))
                    self.wfile.flush()
                    time.sleep(reply.seconds_between_bytes)
            except OSError:
                return  # the client has gone

        do_GET = do_POST = do_PUT = do_DELETE = _handle

        def log_message(self, format: str, *args: object) -> None:  # noqa: A002
            """Quiet."""

    class Server(ThreadingHTTPServer):
        request_queue_size = 128  # with the 5 of Python a few dozen clients at once are refused now and then

    server = Server(("127.0.0.1", 0), Handler)
    server.daemon_threads = True
    local.url = f"http://127.0.0.1:{server.server_port}"
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01}, name="local-http")
    thread.start()
    try:
        yield local
    finally:
        server.shutdown()
        server.server_close()
        thread.join()
