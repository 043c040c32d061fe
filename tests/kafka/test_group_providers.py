"""Members that call a provider, a real HTTP server here: it fails, refuses, throttles, hangs, and they are killed."""

import json
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any
from uuid import UUID, uuid4

import httpx
import psycopg
import pytest
from e2e.conftest import Process, environment
from kafka.conftest import effects, uploaded
from local_http import Received, Reply, serve

from offsetzero import Publisher
from offsetzero.retry import dead_letters
from offsetzero.settings import Settings
from offsetzero.store import runs
from offsetzero.store.script import run
from offsetzero.topics import lag
from support import wait_until

CALLING = """
import os
import httpx
from offsetzero import ConsumerGroup, DocumentDeleted, DocumentUploaded
from offsetzero.retry import desk, protection

if "OZ_TEST_LEASE" in os.environ:  # a real one takes too long for a test
    desk.LEASE_SECONDS = protection.LEASE_SECONDS = float(os.environ["OZ_TEST_LEASE"])
calling = ConsumerGroup("calling", step=True)
client = httpx.Client(timeout=60)

@calling.prepare(DocumentUploaded)
def ask(event, ctx):
    if not event.name.startswith("plain"):
        try:
            with ctx.provider("llm"):
                client.post(os.environ["OZ_TEST_PROVIDER"], json={"name": event.name}).raise_for_status()
        except Exception as error:
            raise RuntimeError("as handlers do") from error if event.name.startswith("rude") else error

@calling.handler(DocumentUploaded)
def note(event, ctx):
    ctx.connection.execute(
        "INSERT INTO effects (document_id, note, attempt) VALUES (%s, %s, %s)",
        (event.document_id, event.name, ctx.attempt),
    )
"""
pytestmark = [pytest.mark.usefixtures("topics"), pytest.mark.timeout(180)]


class Provider:
    """Counts who calls, and how many at once.

    Args:
        answer: the status, by the document's name.
        seconds: that a call takes.
    """

    def __init__(self, answer: Callable[[str], int | Reply] = lambda name: 200, seconds: float = 0.0) -> None:
        self.answer = answer
        self.seconds = seconds
        self.most = self.running = 0
        self.calls: list[tuple[float, str]] = []
        self.hung = threading.Event()
        self._lock = threading.Lock()

    def __call__(self, received: Received) -> Reply:
        name = json.loads(received.body)["name"]
        with self._lock:
            self.running += 1
            self.most = max(self.most, self.running)
            self.calls.append((time.monotonic(), name))
        try:
            self.hung.wait(self.seconds)
            answer = self.answer(name)
            return answer if isinstance(answer, Reply) else Reply(answer)
        finally:
            with self._lock:
                self.running -= 1


class Members:
    """Processes of the group, and what is known of them."""

    def __init__(self, settings: Settings, folder: Path, url: str, stack: ExitStack) -> None:
        self.settings = settings
        self.processes: list[Process] = []
        self._folder = folder
        self._url = url
        self._stack = stack
        (folder / "mine.py").write_text(CALLING)

    def start(self, count: int = 1, **given: str) -> list[Process]:
        env = {
            "PYTHONPATH": str(self._folder),
            "OZ_TEST_PROVIDER": self._url,
            "OFFSETZERO_PROVIDERS__PROBE_SECONDS": "0.5",
            **given,
        }
        for _ in range(count):
            log = self._folder / f"member-{len(self.processes)}.log"
            process = Process(["groups", "run", "mine:calling"], environment(self.settings, **env), log)
            self._stack.callback(process.kill)
            self.processes.append(process)
        for process in self.processes[-count:]:
            process.await_line("group started")
        return self.processes[-count:]

    def page(self, process: Process, path: str = "/healthz") -> str:
        url: str = process.await_line("metrics served")["url"]
        return httpx.get(url.replace("/metrics", path), timeout=10).text

    def health(self, process: Process) -> dict[str, Any]:
        shown: dict[str, Any] = json.loads(self.page(process))
        return shown

    def value(self, process: Process, metric: str) -> float:
        found = [line for line in self.page(process, "/metrics").splitlines() if line.startswith(metric)]
        return sum(float(line.rpartition(" ")[2]) for line in found)

    def lines(self, event: str) -> list[dict[str, Any]]:
        return [line for process in self.processes for line in process.lines if line["event"] == event]


Calling = Callable[[Provider], "contextmanager[Members]"]


@pytest.fixture
def calling(settings: Settings, tmp_path: Path, database: psycopg.Connection) -> Calling:
    """A provider that is served, and the members that call it."""

    @contextmanager
    def make(provider: Provider) -> Iterator[Members]:
        with ExitStack() as stack:
            server = stack.enter_context(serve(provider))
            stack.callback(provider.hung.set)
            yield Members(settings, tmp_path, server.url, stack)

    return make


def publish(settings: Settings, database: psycopg.Connection, names: list[str]) -> dict[str, UUID]:
    """Documents with runs; gives the run of each."""
    made = {name: uuid4() for name in names}
    with Publisher(settings) as publisher:
        for name, run_id in made.items():
            run(database, runs.create(run_id, "acme", uuid4(), ["calling"]))
            publisher.publish(uploaded(run_id=run_id, name=name))
        assert publisher.flush(30) == 0
    return made


def step(database: psycopg.Connection, run_id: UUID) -> tuple[str, str | None, int]:
    row = database.execute(
        "SELECT status, reason, attempts FROM run_steps WHERE run_id = %s AND step = 'calling'", (run_id,)
    ).fetchone()
    assert row is not None
    return row


def appended(settings: Settings) -> int:
    """Records that were ever appended to a retry or dead-letter topic."""
    return sum(one.high for one in lag.group_offsets(settings, "calling") if "retry" in one.topic) + len(
        list(dead_letters.read(settings, "calling"))
    )


def await_done(database: psycopg.Connection, count: int, seconds: float = 90) -> list[tuple[UUID, str, int]]:
    wait_until(lambda: len(effects(database)) >= count, seconds, what=f"{count} effects")
    return effects(database)


def test_503_for_an_hour_costs_a_thousand_documents_nothing_but_time(
    settings: Settings, database: psycopg.Connection, calling: Calling
) -> None:
    """An hour is 24 probes here. Two members of 16 workers and room for 100 records each."""
    down = threading.Event()
    provider = Provider(lambda name: 503 if down.is_set() else 200)
    with calling(provider) as members:
        down.set()
        first, second = members.start(2, OFFSETZERO_GROUPS__MAX_IN_FLIGHT="100")
        names = [f"{'rude' if n % 10 == 0 else 'doc'}-{n}" for n in range(1000)]
        plain = [f"plain-{n}" for n in range(100)]
        made = publish(settings, database, [one for n in range(100) for one in (*names[n::100], plain[n])])
        wait_until(lambda: members.lines("provider down"), 30, what="an open breaker")
        before = len(provider.calls)
        assert before <= 60
        wait_until(lambda: len(provider.calls) >= before + 24, 60, what="24 probes")
        times = [at for at, _ in provider.calls[before:]][-20:]
        assert times[-1] - times[0] >= 19 * 0.45, "one probe an interval, over both"
        waiting = [name for name in names if step(database, made[name])[:2] == ("waiting", "provider")]
        assert len(waiting) >= 100
        for member in (first, second):
            health = members.health(member)
            assert health["reasons"] == []
            assert health["providers"]["llm"]["state"] == "open"
            assert members.value(member, "offsetzero_provider_open{") == 1
            assert members.value(member, "offsetzero_provider_refuses{") == 0
            assert members.value(member, "offsetzero_in_flight_records{") <= 110
            heads = [part["head"]["doing"] for part in health["partitions"] if part["head"]]
            assert heads
            assert set(heads) <= {"waiting: provider", "queued", "running"}
            assert any("back-pressure" in part["pauses"] for part in health["partitions"])
        done = {name for _, name, _ in effects(database)}
        assert done, "what needs no provider goes on"
        assert done <= set(plain)
        down.clear()
        rows = await_done(database, 1100)
        assert len(rows) == len({row[0] for row in rows}) == 1100
        assert {attempt for _, _, attempt in rows} == {1}
        assert {step(database, run_id)[0] for run_id in made.values()} == {"succeeded"}
        assert appended(settings) == 0
        assert all(process.child.poll() is None for process in members.processes)
        wait_until(lambda: members.lines("provider well again"), what="the end of the outage in a log")
        assert [process.stop() for process in members.processes] == [0, 0]
