"""What one part of the API waits for holds up no other: the object store, connections of the pool, open files."""

import re
import secrets
import socket
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor, as_completed
from contextlib import ExitStack
from pathlib import Path

import httpx
import psycopg
import pytest
from e2e.conftest import Process, environment
from local_http import LocalHttp, Received, Reply, serve
from running_api import Api, running

from offsetzero.settings import Settings
from support import wait_until

WAITING = "SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() AND wait_event_type = 'Lock'"


class Store:
    """An object store that takes everything, and stands still when it is told to."""

    def __init__(self) -> None:
        self.goes_on = threading.Event()
        self.goes_on.set()
        self.held = 0

    def answer(self, received: Received) -> Reply:
        self.held += not self.goes_on.is_set()
        self.goes_on.wait(60)
        gone = re.findall(b"<Key>.*?</Key>", received.body) if received.method == "POST" else []
        deleted = b"".join(b"<Deleted>" + key + b"</Deleted>" for key in gone)
        return Reply(body=b"<DeleteResult>" + deleted + b"</DeleteResult>", headers={"ETag": '"1"'})


@pytest.fixture
def store(monkeypatch: pytest.MonkeyPatch) -> Iterator[tuple[Store, LocalHttp]]:
    made = Store()
    with serve(made.answer) as server:
        monkeypatch.setenv("AWS_ENDPOINT_URL", server.url)
        monkeypatch.setenv("AWS_ALLOW_HTTP", "true")
        monkeypatch.setenv("AWS_REGION", "us-east-1")
        monkeypatch.setenv("AWS_ACCESS_KEY_ID", "test")
        monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "test")
        yield made, server
        made.goes_on.set()


def _upload(api: Api, number: int, **force: str) -> httpx.Response:
    file = (f"{number}.md", f"# {number}".encode(), "text/markdown")
    headers = {"Idempotency-Key": secrets.token_hex(8)} if force else {}
    return api.client.post("/documents", params=force, headers=headers, files={"file": file}, timeout=60)


def test_an_object_store_that_stands_still_leaves_connections_to_others(
    database_url: str, tmp_path: Path, store: tuple[Store, LocalHttp]
) -> None:
    objects, _ = store
    url = f"s3://stands-still-{secrets.token_hex(4)}"
    settings = Settings(home=tmp_path, database_url=database_url, object_store_url=url, api={"pool_size": 2})
    with running(settings) as api, ThreadPoolExecutor(4) as threads:
        documents = [_upload(api, number).json()["document_id"] for number in range(4)]
        objects.goes_on.clear()
        again = [threads.submit(_upload, api, number, force="true") for number in range(2)]
        again += [threads.submit(api.client.delete, f"/documents/{one}", timeout=60) for one in documents[2:]]
        wait_until(lambda: objects.held, what="one of them waits for the store")
        for _ in range(20):
            assert api.client.get("/runs").status_code == 200
        objects.goes_on.set()
        assert sorted(one.result().status_code for one in again) == [202, 202, 204, 204]


def test_a_schedule_that_is_at_work_leaves_connections_to_others(database_url: str, tmp_path: Path) -> None:
    """A report of millions of documents takes seconds: whoever asked for ten of it had all connections."""
    settings = Settings(home=tmp_path, database_url=database_url, api={"pool_size": 4})
    asked = {"name": "daily", "kind": "report", "cron": "0 2 * * *"}
    with running(settings) as api, ThreadPoolExecutor(8) as threads, psycopg.connect(database_url) as counting:
        path = f"/schedules/{api.client.post('/schedules', json=asked).json()['id']}"
        counting.execute("SELECT FROM schedules FOR UPDATE")
        keys = [{"Idempotency-Key": str(number)} for number in range(4)]
        asking = [threads.submit(api.client.post, f"{path}/run", headers=key, timeout=60) for key in keys]
        asking += [threads.submit(api.client.patch, path, json={"paused": True}, timeout=60) for _ in range(4)]
        with psycopg.connect(database_url, autocommit=True) as witness:
            wait_until(lambda: witness.execute(WAITING).fetchone() != (0,), what="one of them waits for the schedule")
        for _ in range(20):
            assert api.stranger.get("/schedules").status_code == 200
        counting.rollback()
        assert sorted(one.result().status_code for one in asking) == [200] * 4 + [202] * 4


def test_who_would_wait_for_long_is_told_at_once(database_url: str, tmp_path: Path) -> None:
    settings = Settings(home=tmp_path, database_url=database_url, api={"requests_at_once": 2})
    with (
        running(settings) as api,
        ThreadPoolExecutor(16) as threads,
        psycopg.connect(database_url) as holder,
        psycopg.connect(database_url, autocommit=True) as witness,
    ):
        holder.execute("LOCK TABLE api_keys")
        first = threads.submit(api.client.get, "/runs", timeout=60)
        wait_until(lambda: witness.execute(WAITING).fetchone() == (1,), what="a request that waits for the table")
        others = [threads.submit(api.client.get, "/runs", timeout=60) for _ in range(7)]
        told = as_completed(others)
        refused = [next(told).result() for _ in range(6)]
        assert {(one.status_code, one.headers["retry-after"]) for one in refused} == {(503, "1")}
        assert {one.json()["type"] for one in refused} == {"urn:offsetzero:problem:overloaded"}
        upload = threads.submit(_upload, api, 1)
        at_work = '\noffsetzero_http_at_work{kind="upload"} 1.0'
        wait_until(lambda: at_work in api.anonymous.get("/metrics").text, what="an upload beside them")
        assert api.anonymous.get("/healthz").status_code == 200
        holder.rollback()
        assert sorted(one.result().status_code for one in [first, *others]) == [200] * 2 + [503] * 6
        assert upload.result().status_code == 202
        assert api.client.get("/runs").status_code == 200


def test_more_streams_than_a_process_may_usually_have_files(settings: Settings, tmp_path: Path) -> None:
    """The usual limit is 1,024 files, and a tenant may have 2,000 streams."""
    process = Process(["api", "--port", "0"], environment(settings), tmp_path / "api.log", files=256)
    try:
        port = process.await_line("api listens")["port"]
        with ExitStack() as opened:
            address = ("127.0.0.1", port)
            clients = [opened.enter_context(socket.create_connection(address, timeout=20)) for _ in range(300)]
            for client in clients:
                client.sendall(b"GET /healthz HTTP/1.1\r\nHost: x\r\n\r\n")
                assert client.recv(12) == b"HTTP/1.1 200"
    finally:
        assert process.stop() == 0
