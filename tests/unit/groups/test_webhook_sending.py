"""One delivery, to real HTTP and HTTPS servers."""

import asyncio
import json
import socket
import ssl
import threading
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta, timezone
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from uuid import UUID

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID
from local_http import Reply, serve
from standardwebhooks.webhooks import Webhook

from offsetzero.consumers.groups.webhooks import messages, sending, targets
from offsetzero.consumers.groups.webhooks.sending import Attempt
from offsetzero.schemas.metadata import Metadata
from offsetzero.schemas.runs import RunFailed, RunSucceeded
from offsetzero.settings import WebhookSettings

SECRET = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw"
ALLOWED = WebhookSettings(allow_private_targets=True, connect_timeout=1.0, total_timeout=2.0)


def _send(url: str, settings: WebhookSettings = ALLOWED, body: str = '{"type":"run.succeeded"}') -> Attempt:
    return asyncio.run(sending.send(url, (SECRET,), "msg_1", body, settings))


def test_a_receiver_can_verify_what_it_gets() -> None:
    body = '{"text":"größer"}'
    with serve() as server:
        assert _send(server.url + "/hook?a=1", body=body) == Attempt(200)
    (received,) = server.received
    assert (received.method, received.path) == ("POST", "/hook?a=1")
    assert received.headers["host"] == server.url.removeprefix("http://")
    assert Webhook(SECRET).verify(received.body.decode(), dict(received.headers)) == json.loads(body)


@pytest.mark.parametrize("status", [204, 202])
def test_every_2xx_is_a_delivery(status: int) -> None:
    with serve(lambda _received: Reply(status)) as server:
        assert _send(server.url).delivered


@pytest.mark.parametrize("status", [302, 400, 404, 500, 503])
def test_other_answers_are_failures_worth_another_try(status: int) -> None:
    with serve(lambda _received: Reply(status, headers={"Location": "http://127.0.0.1:1/"})) as server:
        attempt = _send(server.url)
    assert (attempt.delivered, attempt.refused, attempt.status_code) == (False, False, status)
    assert len(server.received) == 1, "redirects are not followed"


def test_gone_is_final() -> None:
    with serve(lambda _received: Reply(410)) as server:
        assert _send(server.url).refused


def test_the_wait_that_a_receiver_asks_for_is_known() -> None:
    with serve(lambda _received: Reply(429, headers={"Retry-After": "9"})) as server:
        assert _send(server.url).retry_after == 9.0


def test_a_private_target_is_never_connected_to() -> None:
    with serve() as server:
        attempt = _send(server.url.replace("http://127.0.0.1", "https://localhost"), WebhookSettings())
    assert attempt.refused
    assert server.received == []


def test_a_proxy_of_the_environment_is_not_used(monkeypatch: pytest.MonkeyPatch) -> None:
    with serve() as proxy, serve() as server:
        monkeypatch.setenv("HTTP_PROXY", proxy.url)
        monkeypatch.setenv("ALL_PROXY", proxy.url)
        assert _send(server.url).delivered
    assert proxy.received == []


def test_a_silent_receiver_costs_the_total_time_only() -> None:
    slow = Reply(200, b"x" * 10, seconds_between_bytes=0.05)
    settings = WebhookSettings(allow_private_targets=True, total_timeout=0.5)
    with serve(lambda _received: slow) as server:
        assert _send(server.url, settings).delivered, "the answer's body is not waited for"
    listener = socket.create_server(("127.0.0.1", 0))
    with listener:  # connects, and never answers
        attempt = _send(f"http://127.0.0.1:{listener.getsockname()[1]}", settings)
    assert attempt == Attempt(error="no answer within 0.5 s")


def test_a_closed_port_and_an_unknown_name_are_failures_worth_another_try() -> None:
    with serve() as server:
        pass
    assert _send(server.url).error is not None
    attempt = _send("https://no-such-host.invalid/", WebhookSettings())
    assert attempt.error is not None
    assert not attempt.refused


def test_the_id_follows_from_the_event_and_its_source() -> None:
    one = messages.message_id(Metadata(id="1", source="/a", type="run.failed"))
    assert one == messages.message_id(Metadata(id="1", source="/a", type="run.failed"))
    assert one != messages.message_id(Metadata(id="1", source="/b", type="run.failed"))
    assert one.removeprefix("msg_").isalnum()


def test_the_body_is_the_same_in_every_attempt() -> None:
    at = datetime(2025, 5, 4, 3, 2, 1, tzinfo=UTC)
    event = RunFailed(
        run_id=UUID(int=1),
        tenant_id="demo",
        document_id=UUID(int=2),
        step="indexer",
        reason="corrupt",
        detail="cannot be read",
        finished_at=at,
    )
    body = messages.payload(event, event.finished_at)
    assert body == messages.payload(event, event.finished_at)
    read = json.loads(body)
    assert (read["type"], read["timestamp"]) == ("run.failed", "2025-05-04T03:02:01Z")
    assert (read["data"]["run_id"], read["data"]["finished_at"]) == (str(UUID(int=1)), "2025-05-04T03:02:01Z")


def test_times_in_a_body_have_one_form_whatever_their_zone() -> None:
    at = datetime(2025, 5, 4, 5, 2, 1, 250_000, tzinfo=timezone(timedelta(hours=2)))
    event = RunSucceeded(run_id=UUID(int=1), tenant_id="demo", document_id=UUID(int=2), finished_at=at)
    read = json.loads(messages.payload(event, at))
    assert read["timestamp"] == read["data"]["finished_at"] == "2025-05-04T03:02:01.250000Z"


@pytest.fixture
def https_server(tmp_path: Path) -> Iterator[tuple[int, Path]]:
    """A server with a certificate for `receiver.test`, and not for any address."""
    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "receiver.test")])
    now = datetime.now(UTC)
    certificate = (
        x509.CertificateBuilder()
        .subject_name(name)
        .issuer_name(name)
        .public_key(key.public_key())
        .serial_number(1)
        .not_valid_before(now - timedelta(hours=1))
        .not_valid_after(now + timedelta(hours=1))
        .add_extension(x509.SubjectAlternativeName([x509.DNSName("receiver.test")]), critical=False)
        .add_extension(x509.BasicConstraints(ca=True, path_length=None), critical=True)
        .sign(key, hashes.SHA256())
    )
    pem = certificate.public_bytes(serialization.Encoding.PEM)
    secret = key.private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    )
    both = tmp_path / "both.pem"
    both.write_bytes(secret + pem)

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            self.rfile.read(int(self.headers["content-length"]))
            self.send_response(200)
            self.send_header("Content-Length", "0")
            self.end_headers()

        def log_message(self, format: str, *args: object) -> None:  # noqa: A002
            """Quiet."""

    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(both)
    server = HTTPServer(("127.0.0.1", 0), Handler)
    server.socket = context.wrap_socket(server.socket, server_side=True)
    server.handle_error = lambda *_: None  # type: ignore[method-assign]  # a client that distrusts it hangs up
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    yield server.server_port, both
    server.shutdown()
    server.server_close()
    thread.join()


@pytest.mark.parametrize(("host", "delivered"), [("receiver.test", True), ("other.test", False)])
def test_the_certificate_is_checked_against_the_name(
    https_server: tuple[int, Path], monkeypatch: pytest.MonkeyPatch, host: str, delivered: bool
) -> None:
    """The connection goes to an address; the certificate must still be the name's."""
    port, certificate = https_server
    real = targets.socket.getaddrinfo

    def getaddrinfo(name: str, *rest: object, **options: object) -> object:
        return real("127.0.0.1" if name == host else name, *rest, **options)  # type: ignore[arg-type]

    monkeypatch.setattr(targets.socket, "getaddrinfo", getaddrinfo)
    monkeypatch.setattr(sending, "_tls", lambda: ssl.create_default_context(cafile=str(certificate)))
    attempt = _send(f"https://{host}:{port}/")
    assert attempt.delivered is delivered
    assert delivered or "CERTIFICATE_VERIFY_FAILED" in str(attempt.error)
