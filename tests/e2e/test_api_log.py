"""What the API logs of requests: one line each, and nothing that is secret."""

import contextlib
import re
import socket
from pathlib import Path

import httpx
import psycopg
import pytest
from e2e.conftest import Process, environment

from offsetzero.settings import Settings
from offsetzero.store.tenants import create_key
from support import wait_until

PROBES = ("/healthz", "/readyz", "/metrics")


@pytest.mark.parametrize("level", ["INFO", "DEBUG"])
def test_a_request_is_one_line(settings: Settings, tmp_path: Path, level: str) -> None:
    env = environment(settings, OFFSETZERO_LOG_LEVEL=level)
    process = Process(["api", "--port", "0"], env, tmp_path / "api.log")
    try:
        port = process.await_line("api listens")["port"]
        with psycopg.connect(settings.database_url.get_secret_value()) as connection:
            key = create_key(connection, "acme")
        transport = httpx.HTTPTransport(retries=5)  # its port is bound before it is listened on
        with httpx.Client(base_url=f"http://127.0.0.1:{port}", timeout=30, transport=transport) as client:
            for probe in PROBES:
                client.get(probe)
            mine = {"Authorization": f"Bearer {key}", "X-Request-ID": "proxy-1.a_b"}
            found = client.get("/search", params={"q": "privateword"}, headers=mine)
            odd = client.get("/runs", headers={"Authorization": "Bearer ozk_wrong", "X-Request-ID": "a b\tc"})
            client.get("/elsewhere/privateword")
        wait_until(lambda: _requests(process)[-1]["route"] == "unmatched", what="the line of the last request")
        requests = _requests(process)
    finally:
        assert process.stop() == 0
    assert found.headers["x-request-id"] == "proxy-1.a_b"
    assert re.fullmatch("[0-9a-f]{32}", odd.headers["x-request-id"]), "an id that is no token is not kept"
    told = [line for line in requests if line["route"] not in PROBES]
    assert [(line["method"], line["route"], line["status"], line["tenant_id"]) for line in told] == [
        ("GET", "/search", 200, "acme"),
        ("GET", "/runs", 401, None),
        ("GET", "unmatched", 404, None),
    ]
    assert [line["request_id"] for line in told[:2]] == ["proxy-1.a_b", odd.headers["x-request-id"]]
    assert all(line["level"] == "info" and line["duration_ms"] >= 0 for line in told)
    probes = [(line["route"], line["level"]) for line in requests if line["route"] in PROBES]
    assert probes == ([] if level == "INFO" else [(probe, "debug") for probe in PROBES])
    assert "privateword" not in process.log
    assert "ozk_" not in process.log


def _requests(process: Process) -> list[dict[str, object]]:
    return [line for line in process.lines if line["event"] == "request"]


def test_an_upload_that_is_cut_off_is_no_error_of_ours(settings: Settings, tmp_path: Path) -> None:
    process = Process(["api", "--port", "0"], environment(settings), tmp_path / "api.log")
    try:
        port = process.await_line("api listens")["port"]
        with psycopg.connect(settings.database_url.get_secret_value()) as connection:
            key = create_key(connection, "acme")
        head = (
            f"POST /documents HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer {key}\r\nContent-Length: 100000\r\n"
            "Content-Type: multipart/form-data; boundary=b\r\n\r\n--b\r\n"
            'Content-Disposition: form-data; name="file"; filename="a.txt"\r\n\r\nhalf of it'
        )
        wait_until(lambda: _sent(port, head.encode()), what="the API listens")
        process.await_line("client went away")
    finally:
        assert process.stop() == 0
    assert not [line for line in process.lines if line["level"] == "error"]
    assert "Traceback" not in process.log


def _sent(port: int, data: bytes) -> bool:
    with contextlib.suppress(ConnectionRefusedError), socket.create_connection(("127.0.0.1", port), 5) as connection:
        connection.sendall(data)
        return True
    return False
