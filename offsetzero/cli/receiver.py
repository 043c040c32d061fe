"""The demo's webhook receiver: a real HTTP server that takes only messages with a good signature."""

import json
import threading
from dataclasses import dataclass
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from types import TracebackType
from typing import Any

from offsetzero.errors import ServerError

_MAX_BODY = 1024 * 1024


@dataclass(frozen=True, slots=True)
class Received:
    """A message whose signature was good."""

    message_id: str
    event_type: str
    data: dict[str, Any]


class Receiver:
    """Listens on a free port and keeps what it receives. Set `secret` before messages come.

    Args:
        address: of this machine, where it listens.
        host: what the sender knows the address by; by default the address itself.

    Raises:
        ServerError: the address is none of this machine.
    """

    def __init__(self, address: str = "127.0.0.1", host: str | None = None) -> None:
        self.secret = ""
        self.received: list[Received] = []
        self.refused: list[str] = []
        self._host = host or address
        try:
            self._server = _Server(self, address)
        except OSError as error:
            raise ServerError(f"webhooks cannot be received at {address}: {error.strerror or error}") from error
        self._thread = threading.Thread(target=self._server.serve_forever, name="webhook receiver")

    @property
    def url(self) -> str:
        """Where messages go."""
        return f"http://{self._host}:{self._server.server_port}/hook"

    def __enter__(self) -> "Receiver":
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()

    def take(self, body: bytes, headers: dict[str, str]) -> int:
        """Verify a message and keep it.

        Returns:
            The HTTP status of the answer.
        """
        from standardwebhooks.webhooks import WebhookVerificationError

        from offsetzero.consumers.groups.webhooks import signing

        try:
            signing.verify(self.secret, body, headers)
            message = json.loads(body)
            item = Received(headers["webhook-id"], str(message["type"]), message["data"])
        except (WebhookVerificationError, ValueError, KeyError, TypeError) as error:
            self.refused.append(f"{type(error).__name__}: {error}")
            return 400
        if item.message_id not in {other.message_id for other in self.received}:  # sent again: taken once
            self.received.append(item)
        return 204


class _Server(ThreadingHTTPServer):
    daemon_threads = True

    def __init__(self, receiver: Receiver, address: str) -> None:
        self.receiver = receiver
        super().__init__((address, 0), _Handler)


class _Handler(BaseHTTPRequestHandler):
    server: _Server

    def do_POST(self) -> None:
        length = int(self.headers.get("content-length") or 0)
        if not 0 < length <= _MAX_BODY:
            status = 413 if length else 400
        else:
            headers = {name.lower(): value for name, value in self.headers.items()}
            status = self.server.receiver.take(self.rfile.read(length), headers)
        self.send_response(status)
        self.send_header("content-length", "0")
        self.end_headers()

    def log_message(self, format: str, *args: Any) -> None:  # noqa: A002  # the base class's name
        """Nothing is printed between the demo's lines."""
