"""What others rely on in the HTTP server, and what a client may send before it has shown a key."""

import socket
from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest
from fastapi import FastAPI
from running_api import serving

from offsetzero.api.server import HEAD_BYTES, Server
from offsetzero.settings import Settings

BEGINNING = b"POST /runs HTTP/1.1\r\nHost: x\r\n"
CHUNKED = BEGINNING + b"Transfer-Encoding: chunked\r\n\r\n1\r\n[\r\n0\r\n"


@pytest.fixture(scope="module")
def url(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """Of an API without its database."""
    home: Path = tmp_path_factory.mktemp("api")
    with serving(Settings(home=home, database_url="postgresql://127.0.0.1:1/none")) as found:
        yield found


@pytest.mark.parametrize(
    ("begin", "more"),
    [
        (BEGINNING + b"X-One: ", b"a" * 1024),
        (BEGINNING, b"X-Many: " + b"a" * 1014 + b"\r\n"),
        (b"GET /", b"a" * 1024),
        (CHUNKED, b"X-Trailer: " + b"a" * 1011 + b"\r\n"),
    ],
    ids=["a-header", "headers", "a-path", "trailers"],
)
def test_a_head_that_does_not_end_is_not_kept(url: str, begin: bytes, more: bytes) -> None:
    """h11 has a limit; the parser in C, which took its place, has none."""
    address = httpx.URL(url)
    with socket.create_connection((address.host, address.port or 0), timeout=30) as client:
        client.sendall(begin)
        with pytest.raises((BrokenPipeError, ConnectionResetError)):
            client.sendall(more * 64 * 1024)


def test_a_head_and_a_body_that_are_long_are_taken(url: str) -> None:
    long = {"X-Long": "a" * (HEAD_BYTES // 2)}
    with httpx.Client(base_url=url) as client:
        assert client.get("/healthz", headers=long).status_code == 200
        assert client.post("/healthz", headers=long, content=(b"a" * 1024 for _ in range(1024))).status_code == 405
        assert client.get("/healthz").status_code == 200


def test_a_connection_is_kept_open_for_longer_than_proxies_keep_theirs() -> None:
    """Else some of their requests meet a connection that is just closed: 60 s is what many have."""
    assert Server(FastAPI()).config.timeout_keep_alive > 60
