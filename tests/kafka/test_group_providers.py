"""Members that call a provider, a real HTTP server here: it fails, refuses, throttles, hangs, and they are killed."""

import json
import threading
import time
from collections import Counter
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
from support import wait_until, within

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
                asked = {"name": event.name, "process": os.getpid()}
                client.post(os.environ["OZ_TEST_PROVIDER"], json=asked).raise_for_status()
        except Exception as error:
            if event.name.startswith("rude"):
                raise RuntimeError("as handlers do") from error
            raise

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
        self.process = 0  # that called last
        self.hung = threading.Event()
        self._lock = threading.Lock()

    def __call__(self, received: Received) -> Reply:
        asked = json.loads(received.body)
        name = asked["name"]
        with self._lock:
            self.process = asked["process"]
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
        wait_until(lambda: members.lines("provider down"), what="an open breaker")
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


def test_a_401_stops_all_at_once_pages_and_work_resumes_when_the_key_is_good(
    settings: Settings, database: psycopg.Connection, calling: Calling
) -> None:
    good = threading.Event()
    provider = Provider(lambda name: 200 if good.is_set() else 401, seconds=0.05)
    with calling(provider) as members:
        (member,) = members.start()
        made = publish(settings, database, [f"doc-{n}" for n in range(60)])
        wait_until(lambda: members.lines("provider down"), what="an open breaker")
        (line,) = members.lines("provider down")
        assert (line["cause"], line["level"]) == ("provider-401", "error")
        assert "docs/runbooks/provider.md" in line["next"]
        at_once = len(provider.calls)
        assert at_once <= 20, "those that were in flight"
        wait_until(lambda: members.value(member, "offsetzero_provider_refuses{") == 1, what="the metric that pages")
        wait_until(lambda: len(provider.calls) >= at_once + 3, what="probes")
        assert members.health(member)["providers"]["llm"]["cause"] == "provider-401"
        waited = [step(database, run_id) for run_id in made.values()]
        assert ("waiting", "provider", 1) in waited
        good.set()
        assert {attempt for _, _, attempt in await_done(database, 60)} == {1}
        assert appended(settings) == 0
        wait_until(lambda: members.value(member, "offsetzero_provider_refuses{") == 0, what="the end of the page")
        assert member.stop() == 0


def test_a_403_that_one_record_gets_fails_its_run_alone(
    settings: Settings, database: psycopg.Connection, calling: Calling
) -> None:
    provider = Provider(lambda name: 403 if name == "doc-7" else 200)
    with calling(provider) as members:
        members.start()
        made = publish(settings, database, [f"doc-{n}" for n in range(40)])
        await_done(database, 39)
        more = publish(settings, database, ["later"])  # the probe with another record, if none was
        await_done(database, 40)
        wait_until(lambda: step(database, made["doc-7"])[0] == "failed", what="the end of the refused run")
        assert step(database, made["doc-7"]) == ("failed", "provider-403", 1)
        assert {step(database, run_id)[0] for run_id in (made | more).values()} == {"succeeded", "failed"}
        assert members.lines("provider down") == []
        assert [line["reason"] for line in members.lines("handling failed")] == ["provider-403"]
        assert appended(settings) == 0


def test_a_403_that_all_get_stops_all_and_fails_none(
    settings: Settings, database: psycopg.Connection, calling: Calling
) -> None:
    good = threading.Event()
    provider = Provider(lambda name: 200 if good.is_set() else 403)
    with calling(provider) as members:
        (member,) = members.start()
        made = publish(settings, database, [f"doc-{n}" for n in range(40)])
        wait_until(lambda: members.lines("provider down"), what="an open breaker")
        assert members.lines("provider down")[0]["cause"] == "provider-403"
        wait_until(lambda: members.value(member, "offsetzero_provider_refuses{") == 1, what="the metric that pages")
        good.set()
        assert {attempt for _, _, attempt in await_done(database, 40)} == {1}
        assert {step(database, run_id)[0] for run_id in made.values()} == {"succeeded"}
        assert appended(settings) == 0


def test_a_failure_of_one_record_alone_is_retried_as_ever(
    settings: Settings, database: psycopg.Connection, calling: Calling
) -> None:
    tried: Counter[str] = Counter()

    def answer(name: str) -> int:
        tried[name] += 1
        return 503 if name == "doc-3" and tried[name] == 1 else 200

    with calling(Provider(answer)) as members:
        members.start()
        publish(settings, database, [f"doc-{n}" for n in range(10)])
        attempts = {name: attempt for _, name, attempt in await_done(database, 10)}
        assert attempts == {f"doc-{n}": 2 if n == 3 else 1 for n in range(10)}
        assert tried["doc-3"] == 2
        assert appended(settings) == 1


@pytest.mark.timed
def test_a_prober_that_is_killed_and_its_permits_are_free_again(
    settings: Settings, database: psycopg.Connection, calling: Calling
) -> None:
    """The provider hangs: the one that probes is killed in its call, and the other's probe closes the breaker."""
    state = ["refuses"]
    provider = Provider(lambda name: 401 if state[0] == "refuses" else 200)
    lease = {"OZ_TEST_LEASE": "3", "OFFSETZERO_PROVIDERS__LIMITS": '{"llm": {"calls": 1}}'}
    with calling(provider) as members:
        pair = members.start(2, **lease)
        publish(settings, database, [f"doc-{n}" for n in range(60)])
        wait_until(lambda: len({line["cause"] for line in members.lines("provider down")}) == 1)
        wait_until(lambda: all(members.value(one, "offsetzero_provider_waits_total{") for one in pair))
        state[0], provider.seconds = "well", 60.0  # the next probe hangs until it is killed
        wait_until(lambda: provider.running == 1, what="a probe that hangs")
        before = len(provider.calls)
        prober = next(one for one in pair if one.child.pid == provider.process)
        provider.seconds = 0.0
        prober.kill()
        killed = time.monotonic()
        wait_until(lambda: len(provider.calls) > before, what="another prober")
        within(3 + 3, time.monotonic() - killed, "another one probed after a lease of 3 s, and a look")
        assert provider.most == 2, "the one that hangs for ever, with nobody behind it, and one more"
        await_done(database, 60)
        assert appended(settings) == 0


def test_twenty_calls_at_once_over_three_processes(
    settings: Settings, database: psycopg.Connection, calling: Calling
) -> None:
    """48 workers. One of the processes is killed in the middle: its permits come back, and the bound holds."""
    provider = Provider(seconds=60.0)
    with calling(provider) as members:
        victim, *others = members.start(3, OZ_TEST_LEASE="3")
        publish(settings, database, [f"doc-{n}" for n in range(360)])
        wait_until(lambda: provider.running == 20, what="20 calls at once")
        provider.seconds, held, provider.hung = 0.2, provider.hung, threading.Event()
        held.set()
        wait_until(lambda: len(effects(database)) >= 90, 60, what="90 effects")
        victim.kill()
        rows = await_done(database, 360)
        assert len({document for document, _, _ in rows}) == 360
        assert provider.most <= 20
        assert {attempt for _, _, attempt in rows} == {1}
        wait_until(lambda: provider.running == 0)
        assert [process.stop() for process in others] == [0, 0]


def test_429_slows_all_down_and_the_rate_ramps_back(
    settings: Settings, database: psycopg.Connection, calling: Calling
) -> None:
    """The provider takes 10 calls in a second of its clock, and says how long to wait."""
    taken: Counter[int] = Counter()
    refused: list[float] = []

    def answer(name: str) -> int | Reply:
        second = int(time.monotonic())
        taken[second] += 1
        if taken[second] <= 10 or gone.is_set():
            return 200
        refused.append(time.monotonic())
        return Reply(429, headers={"Retry-After": "1"})

    gone = threading.Event()
    provider = Provider(answer)
    with calling(provider) as members:
        first, second = members.start(2, OFFSETZERO_PROVIDERS__RATE="300")
        publish(settings, database, [f"doc-{n}" for n in range(100)])
        wait_until(lambda: members.value(first, "offsetzero_provider_rate{") < 300, what="a slower rate")
        rows = await_done(database, 100)
        again = [name for _, name, attempt in rows if attempt > 1]
        assert len(again) <= 2, "the first that is throttled tells all others"
        assert appended(settings) == len(again)
        assert len(refused) <= 50
        gone.set()
        slow = members.value(second, "offsetzero_provider_rate{")
        wait_until(lambda: members.value(second, "offsetzero_provider_rate{") > slow + 1, 60, what="a faster rate")
        assert members.lines("provider throttles")
        assert members.lines("provider down") == []
