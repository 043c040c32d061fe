"""`offsetzero groups run`, as a person or a supervisor stops it, and looks at it."""

import json
import signal
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from subprocess import Popen
from typing import Any

import httpx
import pytest
from commands import Commands
from kafka.conftest import RunningGroup, uploaded

from offsetzero import Publisher
from offsetzero.consumers.context import Context
from offsetzero.consumers.group import ConsumerGroup
from offsetzero.schemas.documents import DocumentUploaded
from offsetzero.settings import Settings
from offsetzero.topics import catalogue, cluster, lag
from support import wait_until, within

SLOW = """
import time
from pathlib import Path
from offsetzero import ConsumerGroup, DocumentUploaded
slow = ConsumerGroup("slow")

@slow.handler(DocumentUploaded)
def handle(event, ctx):
    Path("begun").touch()
    while not Path("go").exists():
        time.sleep(0.01)
    Path("done").write_text(f"attempt {ctx.attempt}")
"""


@contextmanager
def command(settings: Settings, folder: Path, code: str, name: str, **environment: str) -> "Iterator[Popen[str]]":
    """A member of a group whose file is made of `code`."""
    (folder / "mine.py").write_text(code)
    process = Commands(settings, folder).start("groups", "run", f"mine:{name}", **environment)
    try:
        yield process
    finally:
        process.kill()
        process.wait()


@contextmanager
def busy_member(settings: Settings, folder: Path, **environment: str) -> "Iterator[Popen[str]]":
    """A member whose one handler runs until the file `go` is there."""
    with Publisher(settings) as publisher:
        publisher.publish(uploaded()).result(10)
    with command(settings, folder, SLOW, "slow", **environment) as process:
        wait_until((folder / "begun").exists, 60, what="the handler's start")
        yield process


def line(process: "Popen[str]", begin: str) -> str:
    """The first line on standard error that begins so, among the log lines."""
    assert process.stderr is not None
    return next(text for text in process.stderr if text.startswith(begin)).strip()


def pages(process: "Popen[str]") -> Callable[[str], tuple[int, dict[str, Any]]]:
    """Asks the process for a page: its status, and its JSON."""
    assert process.stderr is not None
    said = (json.loads(text) for text in process.stderr if text.startswith("{"))
    url = next(one["url"] for one in said if one["event"] == "metrics served")

    def get(path: str) -> tuple[int, dict[str, Any]]:
        answer = httpx.get(url.replace("/metrics", path), timeout=10)
        return answer.status_code, answer.json()

    return get


@pytest.mark.usefixtures("topics", "database")
def test_a_member_that_is_stopped_says_what_it_waits_for(settings: Settings, tmp_path: Path) -> None:
    with busy_member(settings, tmp_path) as process:
        process.send_signal(signal.SIGINT)
        assert line(process, "stopping") == "stopping: 1 handler runs, at most 20 s; again to end at once"
        (tmp_path / "go").touch()
        assert process.wait(60) == 0


@pytest.mark.usefixtures("topics", "database")
def test_a_second_signal_ends_a_member_at_once_and_says_so(settings: Settings, tmp_path: Path) -> None:
    with busy_member(settings, tmp_path) as process:
        process.send_signal(signal.SIGTERM)
        line(process, "stopping")
        process.send_signal(signal.SIGINT)
        said = line(process, "ending")
        assert said == "ending at once: 1 handler runs; their records will be read again"
        assert process.wait(60) == 128 + signal.SIGINT


@pytest.mark.usefixtures("topics", "database")
def test_a_handler_that_does_not_end_is_told_by_the_exit_status_and_costs_no_attempt(
    settings: Settings, tmp_path: Path
) -> None:
    """dramatiq#376: shutdown counted as a failure."""
    with busy_member(settings, tmp_path, OFFSETZERO_GROUPS__DRAIN_SECONDS="1") as process:
        process.send_signal(signal.SIGTERM)
        assert process.wait(60) == 4
    assert sum(one.lag for one in lag.group_offsets(settings, "slow")) == 1
    (tmp_path / "go").touch()
    with command(settings, tmp_path, SLOW, "slow") as process:
        wait_until((tmp_path / "done").exists, 60, what="its end in another process")
        process.send_signal(signal.SIGTERM)
        assert process.wait(60) == 0
    assert (tmp_path / "done").read_text() == "attempt 1"


LOADED = """
import asyncio, os, random, time
from offsetzero import ConsumerGroup, DocumentUploaded
loaded = ConsumerGroup("loaded", database=False, concurrency=CONCURRENCY)
calls = os.open("calls", os.O_WRONLY | os.O_APPEND | os.O_CREAT)

def took(event):
    os.write(calls, (event.name + chr(10)).encode())
"""
SYNC = (
    LOADED.replace("CONCURRENCY", "32")
    + """
@loaded.handler(DocumentUploaded)
def handle(event, ctx):
    time.sleep(random.random() * 0.02)
    took(event)
"""
)
ASYNC = (
    LOADED.replace("CONCURRENCY", "32")
    + """
@loaded.handler(DocumentUploaded)
async def handle(event, ctx):
    await asyncio.sleep(random.random() * 0.02)
    took(event)
"""
)
BATCH = (
    LOADED.replace("CONCURRENCY", "4")
    + """
@loaded.batch(DocumentUploaded, size=50)
def handle(events, ctx):
    time.sleep(random.random() * 0.5)
    for event in events:
        took(event)
"""
)


@pytest.mark.timed
@pytest.mark.parametrize("code", [SYNC, ASYNC, BATCH], ids=["sync", "async", "batch"])
@pytest.mark.usefixtures("topics")
def test_a_member_that_is_stopped_under_load_leaves_nothing_to_be_read_twice(
    code: str, settings: Settings, tmp_path: Path
) -> None:
    """No outcome is stored, so that a record that is read again is handled again.

    A tenth of the events has one key: many of them wait for each other while others behind them are done.
    """
    events = [uploaded(name=str(number)) for number in range(5000)]
    with Publisher(settings) as publisher:
        for number, event in enumerate(events):
            same = events[0] if number % 10 == 0 else events[number % 1000]
            publisher.publish(event.model_copy(update={"document_id": same.document_id}))

    def calls() -> list[str]:
        path = tmp_path / "calls"
        return path.read_text().splitlines() if path.exists() else []

    left = 5000
    while left:
        stop_at = 5000 if left < 3000 else 5000 - left + 500
        with command(settings, tmp_path, code, "loaded") as process:
            wait_until(lambda at=stop_at: len(calls()) >= at, 90, what=f"{stop_at} calls")  # type: ignore[misc]
            begun = time.monotonic()
            process.send_signal(signal.SIGTERM)
            assert process.wait(60) == 0
            within(20, time.monotonic() - begun, "its end")
        assert set(Counter(calls()).values()) == {1}, "handled once each"
        left = 5000 - len(calls())
        assert left == sum(one.lag for one in lag.group_offsets(settings, "loaded")), "and all committed"
        assert left > 100 or stop_at == 5000, "it was under load"


HANGS = """
import asyncio, threading
from pathlib import Path
from offsetzero import ConsumerGroup, DocumentUploaded
from offsetzero.retry.policy import Tier
hangs = ConsumerGroup("hangs", timeout=1, tiers=[Tier("retry-1m", 1.0)])

@hangs.prepare(DocumentUploaded)
async def look(event, ctx):
    pass

@hangs.handler(DocumentUploaded)
def handle(event, ctx):
    if ctx.attempt == 1:
        threading.Event().wait()
    Path("done").write_text(f"attempt {ctx.attempt}")
"""


@pytest.mark.usefixtures("topics", "database")
def test_a_thread_that_was_given_up_does_not_keep_the_process(settings: Settings, tmp_path: Path) -> None:
    """Python waits for the threads of an executor before it ends."""
    with Publisher(settings) as publisher:
        publisher.publish(uploaded()).result(10)
    with command(settings, tmp_path, HANGS, "hangs") as process:
        wait_until((tmp_path / "done").exists, 60, what="the second attempt")
        process.send_signal(signal.SIGTERM)
        assert process.wait(60) == 0
    assert (tmp_path / "done").read_text() == "attempt 2"


STALLS = """
from pathlib import Path
from offsetzero import ConsumerGroup, DocumentUploaded
from offsetzero.consumers import resources
stalls = ConsumerGroup("stalls", database=False)
make, made = resources.Consumer, []
resources.Consumer = lambda *given, **named: made.append(make(*given, **named)) or made[-1]

@stalls.handler(DocumentUploaded)
def handle(event, ctx):
    made[-1].pause(made[-1].assignment())  # behind the back of its owner
    Path("begun").touch()
"""


@pytest.mark.usefixtures("topics")
def test_a_member_that_stands_still_for_no_known_reason_ends_with_an_error(settings: Settings, tmp_path: Path) -> None:
    with Publisher(settings) as publisher:
        document = uploaded()
        publisher.publish(document).result(10)
        with command(settings, tmp_path, STALLS, "stalls", OFFSETZERO_GROUPS__STALL_SECONDS="4") as process:
            wait_until((tmp_path / "begun").exists, 60, what="the first event")
            publisher.publish(document.model_copy(update={"name": "another"})).result(10)
            assert line(process, "Error:").startswith("Error: group stalls: stalled: documents/")
            assert process.wait(60) == 1


# --- probes


@pytest.mark.usefixtures("topics", "database")
def test_probes_tell_a_member_at_work_from_one_that_ends(settings: Settings, tmp_path: Path) -> None:
    with busy_member(settings, tmp_path, OFFSETZERO_GROUPS__STUCK_SECONDS="1") as process:
        get = pages(process)
        wait_until(lambda: get("/healthz")[1]["stuck"], what="the stuck handler")
        status, body = get("/readyz")
        assert status == 200
        assert (body["group"], body["state"], body["reasons"], body["not_ready"]) == ("slow", "working", [], [])
        assert body["handlers"] == {"running": 1, "given_up": 0, "waiting": 0}
        assert len(body["partitions"]) == 30
        (busy,) = (one for one in body["partitions"] if one["head"] is not None)
        (stuck,) = body["stuck"]
        assert (busy["topic"], busy["position"], busy["end"], busy["lag"], busy["undone"]) == ("documents", 1, 1, 1, 1)
        assert (busy["head"]["offset"], busy["head"]["doing"]) == (0, "running")
        assert busy["head"]["key"] == stuck["key"]
        assert stuck["where"].startswith("mine.py:")
        idle = next(one for one in body["partitions"] if one["head"] is None)
        assert (idle["position"], idle["committed"], idle["lag"], idle["pauses"]) == (0, 0, 0, [])
        process.send_signal(signal.SIGTERM)
        line(process, "stopping")
        status, body = wait_until(lambda: (found := get("/readyz"))[0] == 503 and found, what="that it is not ready")
        assert body["not_ready"] == ["it is draining"]
        status, body = get("/healthz")
        assert (status, body["state"]) == (200, "draining")
        (tmp_path / "go").touch()
        assert process.wait(60) == 0


@pytest.mark.parametrize("protocol", ["consumer", "classic"])
def test_a_member_without_a_partition_is_ready_too(protocol: str, settings: Settings) -> None:
    """There are more members than partitions: the client hears nothing of that under KIP-848."""
    kafka = settings.kafka.model_copy(update={"partitions": 1, "group_protocol": protocol})
    small = settings.model_copy(update={"kafka": kafka})
    cluster.ensure(small, [topic.resolved(small) for topic in catalogue.TOPICS])
    group = ConsumerGroup("audit", database=False)

    @group.handler(DocumentUploaded)
    def note(event: DocumentUploaded, ctx: Context) -> None:
        pass

    members = [RunningGroup(group, small) for _ in range(2)]
    try:
        wait_until(lambda: all(one.runtime.health().ready for one in members), 60, what="two that are ready")
        wait_until(
            lambda: sorted(len(one.runtime.health().body["partitions"]) for one in members) == [0, 5],
            what="one without a partition",
        )
        assert all(one.runtime.health().ready for one in members)
    finally:
        for one in members:
            one.stop()
