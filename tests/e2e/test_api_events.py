"""Following a run over HTTP: `GET /runs/{id}/events`."""

import asyncio
import ctypes
import random
import signal
import socket
import struct
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any
from uuid import UUID, uuid4

import httpx
import psycopg
import pytest
from e2e.conftest import Process, environment
from event_client import Busy, Told, following, following_async
from running_api import Api, running

from offsetzero.api import event_stream, run_stream
from offsetzero.cli import serve
from offsetzero.settings import Settings
from offsetzero.store import run_steps, runs
from offsetzero.store.script import Script, run
from offsetzero.store.tenants import create_key
from support import IS_NIGHT, wait_until, within

# A filter of the kernel on one socket that lets no packet in, not even acknowledgements out: `ret 0`.
_RETURN_0 = ctypes.create_string_buffer(struct.pack("HBBI", 0x06, 0, 0, 0))
_DROP_ALL = struct.pack("HP", 1, ctypes.addressof(_RETURN_0))
_ATTACH_FILTER = 26  # SO_ATTACH_FILTER
CLIENTS, RUNS, CHANGES = (1_000, 20, 100) if IS_NIGHT else (40, 4, 40)


@pytest.fixture
def api(database_url: str, tmp_path: Path) -> Iterator[Api]:
    with running(Settings(home=tmp_path, database_url=database_url)) as api:
        yield api


def _do(database: Api | Settings, *scripts: Script[Any]) -> None:
    settings = database.settings if isinstance(database, Api) else database
    with psycopg.connect(settings.database_url.get_secret_value(), autocommit=True) as connection:
        for script in scripts:
            with connection.transaction():
                run(connection, script)


def _made(database: Api | Settings, tenant: str = "demo") -> UUID:
    run_id = uuid4()
    _do(database, runs.create(run_id, tenant, uuid4(), ["indexer", "summariser"]))
    return run_id


def _take(told: Iterator[Told | None] | None, number: int) -> list[Told]:
    assert told is not None
    events: list[Told] = []
    while len(events) < number:
        event = next(told)
        events += [event] if event is not None else []
    return events


def test_a_tenant_has_so_many_streams_open_and_no_more(database_url: str, tmp_path: Path) -> None:
    with running(Settings(home=tmp_path, database_url=database_url, api={"streams": 2})) as api:
        run_id, others = _made(api), _made(api, "other")

        def refused() -> bool:
            with api.client.stream("GET", f"/runs/{run_id}/events") as answer:
                return answer.status_code == 429

        with following(api.client, run_id) as one:
            _take(one, 3)
            with following(api.client, run_id) as two:
                _take(two, 3)
                third = api.client.get(f"/runs/{run_id}/events")
                assert (third.status_code, third.headers["retry-after"]) == (429, "15")
                assert third.json()["type"].endswith(":too-many-streams")
                with following(api.stranger, others) as of_another:
                    assert len(_take(of_another, 3)) == 3
            wait_until(lambda: not refused(), what="the end of a stream makes room")


def test_a_run_is_followed_to_its_end_and_no_further(api: Api) -> None:
    run_id = _made(api)
    with following(api.client, run_id) as told:
        queued = _take(told, 3)
        _do(api, run_steps.start_step(run_id, "indexer", 1), run_steps.succeed_step(run_id, "indexer"))
        work = _take(told, 3)
        _do(api, run_steps.fail_step(run_id, "summariser", reason="corrupt", detail="It\ncannot be read."))
        assert told is not None
        end = [event for event in told if event is not None]
    assert [event.id for event in queued + work + end] == list(range(1, 9))
    assert [(event.kind, event.data["status"]) for event in work + end] == [
        ("step", "running"),
        ("run", "running"),
        ("step", "succeeded"),
        ("step", "failed"),
        ("run", "failed"),
    ]
    shown = api.client.get(f"/runs/{run_id}").json()
    assert end[0].data in shown["steps"], "a step is told as GET /runs/{id} shows it"
    assert end[1].data.items() <= shown.items()
    with following(api.client, run_id, 8) as told:
        assert told is None, "204: an EventSource would come again for ever otherwise"
    with following(api.client, run_id) as told:
        assert [event.id for event in told or () if event] == list(range(1, 9))


def test_a_client_that_comes_again_is_told_what_it_has_missed_and_no_more(api: Api) -> None:
    run_id = _made(api)
    _do(api, run_steps.start_step(run_id, "indexer", 1))
    with following(api.client, run_id, 2) as told:
        assert [event.id for event in _take(told, 3)] == [3, 4, 5]
        _do(api, run_steps.succeed_step(run_id, "indexer"))
        assert [event.id for event in _take(told, 1)] == [6]


@pytest.mark.parametrize("last", [None, 1, 99, "of another server"])
def test_a_client_that_is_too_late_is_told_how_the_run_is_once(api: Api, last: int | str | None) -> None:
    run_id = _made(api)
    _do(api, run_steps.start_step(run_id, "indexer", 1))
    with psycopg.connect(api.settings.database_url.get_secret_value()) as connection:
        connection.execute("DELETE FROM run_events WHERE number < 4")
    with following(api.client, run_id, last) as told:
        (first,) = _take(told, 1)
        assert (first.kind, first.id) == ("resync", 5)
        assert first.data == api.client.get(f"/runs/{run_id}").json()
        _do(api, run_steps.succeed_step(run_id, "indexer"), run_steps.succeed_step(run_id, "summariser"))
        assert [(event.kind, event.id) for event in told or () if event] == [("step", 6), ("step", 7), ("run", 8)]


def test_a_run_of_another_tenant_is_not_found(api: Api) -> None:
    run_id = _made(api)
    assert api.stranger.get(f"/runs/{run_id}/events").status_code == 404
    assert api.anonymous.get(f"/runs/{run_id}/events").status_code == 401


def test_silence_has_comments_and_an_end(api: Api, monkeypatch: pytest.MonkeyPatch) -> None:
    assert event_stream.HEARTBEAT_SECONDS == 15
    monkeypatch.setattr(event_stream, "HEARTBEAT_SECONDS", 0.1)
    monkeypatch.setattr(run_stream, "LONGEST_SECONDS", 0.5)
    run_id = _made(api)
    with following(api.client, run_id) as told:
        assert told is not None
        rest = list(told)[3:]
    assert rest == [None] * len(rest)
    assert 3 <= len(rest) <= 5, "a key that was revoked is looked at again"


def test_no_change_of_a_run_is_notified(api: Api) -> None:
    """Transactions that notify commit one after the other in all of PostgreSQL: groups would wait for each other."""
    run_id = _made(api)
    with psycopg.connect(api.settings.database_url.get_secret_value(), autocommit=True) as connection:
        (made,) = connection.execute("SELECT pg_get_functiondef('offsetzero_run_event'::regproc)").fetchone() or ()
        assert "notify" not in made.lower()
    with following(api.client, run_id) as told:
        _take(told, 3)
        _do(api, run_steps.start_step(run_id, "indexer", 1))
        assert [event.id for event in _take(told, 2)] == [4, 5], "it is told all the same"


def _streams(api: Api) -> float:
    """How many streams there are now."""
    lines = api.anonymous.get("/metrics").text.splitlines()
    return next(float(line.split()[1]) for line in lines if line.startswith("offsetzero_http_streams "))


def _open(api: Api, run_id: UUID) -> socket.socket:
    """A client that has been told something, and has not read much of it."""
    client = socket.socket()
    client.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
    client.settimeout(10)
    url = httpx.URL(str(api.client.base_url))
    client.connect((url.host, url.port))
    key = api.client.headers["Authorization"]
    client.sendall(f"GET /runs/{run_id}/events HTTP/1.1\r\nHost: x\r\nAuthorization: {key}\r\n\r\n".encode())
    assert client.recv(12) == b"HTTP/1.1 200"
    assert _streams(api) == 1
    return client


def test_a_client_that_reads_nothing_is_given_up(api: Api, monkeypatch: pytest.MonkeyPatch) -> None:
    """sse-starlette#173: a client that was gone kept its stream for ever."""
    assert event_stream.HEARTBEAT_SECONDS + event_stream.SEND_SECONDS <= 45
    monkeypatch.setattr(event_stream, "SEND_SECONDS", 0.3)
    run_id = _made(api)
    with psycopg.connect(api.settings.database_url.get_secret_value()) as connection:
        for attempt in range(240):
            run(connection, run_steps.start_step(run_id, "indexer", attempt))
        more = "jsonb_build_object('reason', repeat('y', 90000))"  # 20 MB: more than all buffers on the way hold
        connection.execute(f"UPDATE run_events SET state = state || {more}")
    with _open(api, run_id):
        wait_until(lambda: _streams(api) == 0, what="the stream is given up")
        _do(api, run_steps.succeed_step(run_id, "indexer"), run_steps.succeed_step(run_id, "summariser"))
        assert api.client.get(f"/runs/{run_id}").json()["status"] == "succeeded", "the run is none of its business"


@pytest.mark.timed
@pytest.mark.skipif(not hasattr(socket, "TCP_USER_TIMEOUT"), reason="only Linux has it")
def test_a_client_that_is_gone_without_a_word_is_found(
    database_url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its machine lost power: nothing is acknowledged, and nothing says so. Comments are too small to fill a buffer."""
    assert event_stream.HEARTBEAT_SECONDS * 1000 + serve.SILENT_MS <= 45_000
    if not IS_NIGHT:
        monkeypatch.setattr(serve, "SILENT_MS", 500)
        monkeypatch.setattr(event_stream, "HEARTBEAT_SECONDS", 0.2)
    with running(Settings(home=tmp_path, database_url=database_url)) as api, _open(api, _made(api)) as client:
        begun = time.monotonic()
        client.setsockopt(socket.SOL_SOCKET, _ATTACH_FILTER, _DROP_ALL)
        wait_until(lambda: _streams(api) == 0, 60, what="the client is found to be gone")
        within(46 if IS_NIGHT else 5, time.monotonic() - begun, "a client without power")


class _Follower:
    """One client that breaks off at random, comes again, and notes what it was told."""

    def __init__(self, run_id: UUID, seed: int) -> None:
        self.run_id = run_id
        self.ids: list[int] = []
        self.connections = 0
        self.refused = 0
        self._dice = random.Random(seed)

    async def follow(self, client: httpx.AsyncClient) -> None:
        """Until there is nothing more to come."""
        while True:
            self.connections += 1
            left = self._dice.choice([1, 2, 5, 20, 1_000])
            last = self.ids[-1] if self.ids else None
            try:
                async with following_async(client, self.run_id, last) as told:
                    if told is None:
                        return
                    async for event in told:
                        if event is not None:
                            assert event.kind != "resync"
                            self.ids.append(event.id)
                            left -= 1
                        if not left:
                            break  # in the middle of the answer: the connection is closed
            except (httpx.TransportError, Busy):  # a thousand at once wait for ten connections to the database
                self.refused += 1
                await asyncio.sleep(5 * self._dice.random())


def _work(settings: Settings, run_ids: list[UUID], stop_after: int) -> None:
    """Change runs as fast as it goes, then end them."""
    with psycopg.connect(settings.database_url.get_secret_value()) as connection:
        for attempt in range(1, stop_after + 1):
            for run_id in run_ids:
                run(connection, run_steps.start_step(run_id, "indexer", attempt))
                connection.commit()
        for run_id in run_ids:
            run(connection, run_steps.succeed_step(run_id, "indexer"))
            run(connection, run_steps.succeed_step(run_id, "summariser"))
            connection.commit()


def _serve(settings: Settings, tmp_path: Path, name: str) -> tuple[Process, str]:
    process = Process(["api", "--port", "0"], environment(settings), tmp_path / f"{name}.log")
    return process, f"http://127.0.0.1:{process.await_line('api listens')['port']}"


@pytest.mark.timeout(900 if IS_NIGHT else 120)
def test_clients_that_break_off_at_random_miss_nothing_and_hear_nothing_twice(
    database_url: str, tmp_path: Path
) -> None:
    """soliplex#680: the stream was closed, and the job with it, or went on for nobody."""
    settings = Settings(home=tmp_path, database_url=database_url)
    process, url = _serve(settings, tmp_path, "api")
    with psycopg.connect(database_url) as connection:
        key = create_key(connection, "demo")
    run_ids = [_made(settings) for _ in range(RUNS)]
    followers = [_Follower(run_ids[seed % RUNS], seed) for seed in range(CLIENTS)]

    async def follow() -> None:
        headers = {"Authorization": f"Bearer {key}"}
        limits = httpx.Limits(max_connections=None, max_keepalive_connections=0)
        async with httpx.AsyncClient(base_url=url, headers=headers, timeout=60, limits=limits) as client:
            working = asyncio.get_running_loop().run_in_executor(pool, _work, settings, run_ids, CHANGES)
            await asyncio.gather(working, *(follower.follow(client) for follower in followers))

    try:
        with ThreadPoolExecutor(1) as pool:
            asyncio.run(follow())
    finally:
        assert process.stop() == 0
    last = 3 + 1 + CHANGES + 3  # queued; the run runs; attempts; two steps and the run end
    for follower in followers:
        assert follower.ids == list(range(1, last + 1))
    connections = sum(follower.connections for follower in followers)
    refused = sum(follower.refused for follower in followers)
    print(f"{CLIENTS} clients, {connections} connections ({refused} refused), {CLIENTS * last} events told")
    assert connections > 2 * CLIENTS
    assert "Traceback" not in process.log


def test_a_process_that_is_asked_to_end_ends_its_streams_in_order(database_url: str, tmp_path: Path) -> None:
    settings = Settings(home=tmp_path, database_url=database_url)
    process, url = _serve(settings, tmp_path, "api")
    with psycopg.connect(database_url) as connection:
        key = create_key(connection, "demo")
    run_id = _made(settings)
    with httpx.Client(base_url=url, headers={"Authorization": f"Bearer {key}"}) as client:
        with following(client, run_id) as one, following(client, run_id) as other:
            _take(one, 3), _take(other, 3)
            process.child.send_signal(signal.SIGTERM)
            # A connection that is cut instead raises RemoteProtocolError here.
            assert list(one or ["none"]) == list(other or ["none"]) == []
        assert process.stop() == 0, process.log
    assert "Cancel" not in process.log
    assert "Traceback" not in process.log
