"""Handlers that take too long, or never return: the membership is kept, other keys flow, the record is named."""

import asyncio
import contextlib
import ctypes
import functools
import os
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from typing import Any

import psycopg
import pytest
from confluent_kafka import TopicPartition
from kafka.conftest import RunningGroup, await_dead_letters, await_effects, effects, uploaded
from kafka.test_group_database import database_away
from prometheus_client import REGISTRY

from offsetzero.clock import SYSTEM
from offsetzero.consumers.context import BatchContext, Context
from offsetzero.consumers.group import ConsumerGroup
from offsetzero.consumers.watching import health, watcher
from offsetzero.consumers.working import database as effects_of_databases
from offsetzero.consumers.working.atwork import AtWork
from offsetzero.errors import GroupStopped
from offsetzero.producers.publisher import Publisher
from offsetzero.retry.policy import Tier
from offsetzero.schemas.documents import DocumentDeleted, DocumentUploaded
from offsetzero.settings import Settings
from offsetzero.topics import lag
from support import passes, wait_until

Running = Callable[..., contextlib.AbstractContextManager[RunningGroup]]
TIERS = [Tier("retry-1m", 0.5)]
INSERT = "INSERT INTO effects (document_id, note, attempt) VALUES (%s, %s, %s)"


POLL_MS = 3000


def quick(settings: Settings, **limits: Any) -> Settings:
    """Settings with short limits; those given are of the section `groups`."""
    options = {"max.poll.interval.ms": POLL_MS}
    if settings.kafka.group_protocol == "classic":
        options |= {"session.timeout.ms": POLL_MS, "heartbeat.interval.ms": 500}
    return settings.model_copy(
        update={
            "groups": settings.groups.model_copy(update={"stuck_seconds": 1.0, "drain_seconds": 2.0, **limits}),
            "kafka": settings.kafka.model_copy(update={"options": options}),
        }
    )


def behind(settings: Settings) -> int:
    return sum(one.lag for one in lag.group_offsets(settings, "audit"))


def note(event: DocumentUploaded, ctx: Context, name: str | None = None) -> None:
    ctx.connection.execute(INSERT, (event.document_id, name or event.name, ctx.attempt))


def notes(database: psycopg.Connection) -> "Counter[str]":
    return Counter(row[1] for row in effects(database))


def doings(member: RunningGroup) -> list[str]:
    """What the heads of line are doing."""
    return [part["head"]["doing"] for part in member.runtime.health().body["partitions"] if part["head"]]


Holding = tuple[Callable[[Context], object], Callable[[], object]]
"""What holds up a handler, and what lets it go."""


@contextlib.contextmanager
def in_python(_: Settings) -> Iterator[Holding]:
    gate = threading.Event()
    yield lambda _: gate.wait(), gate.set


@contextlib.contextmanager
def in_c(_: Settings) -> Iterator[Holding]:
    end, begin = os.pipe()
    read = ctypes.CDLL(None).read  # ctypes releases the interpreter's lock around the call
    yield lambda _: read(end, ctypes.create_string_buffer(1), 1), lambda: os.write(begin, b".")
    os.close(end), os.close(begin)


@contextlib.contextmanager
def in_postgresql(settings: Settings) -> Iterator[Holding]:
    with psycopg.connect(settings.database_url.get_secret_value(), autocommit=True) as other:
        other.execute("SELECT pg_advisory_lock(1)")
        yield (
            lambda ctx: ctx.connection.execute("SELECT pg_advisory_xact_lock(1)"),
            lambda: other.execute("SELECT pg_advisory_unlock(1)"),
        )


# --- no limit of time


@pytest.mark.parametrize(
    ("protocol", "holding"),
    [("consumer", in_python), ("consumer", in_c), ("consumer", in_postgresql), ("classic", in_python)],
)
def test_a_handler_longer_than_the_poll_interval_costs_no_membership(
    protocol: str,
    holding: Callable[[Settings], contextlib.AbstractContextManager[Holding]],
    settings: Settings,
    running: Running,
    database: psycopg.Connection,
) -> None:
    """spring-kafka#2542, watermill#271: evicted, and the record read again and again."""
    chosen = settings.model_copy(update={"kafka": settings.kafka.model_copy(update={"group_protocol": protocol})})
    audit = ConsumerGroup("audit")

    @audit.handler(DocumentUploaded)
    def handle(event: DocumentUploaded, ctx: Context) -> None:
        if event.name == "slow":
            hold_up(ctx)
        note(event, ctx)

    with (
        holding(settings) as (hold_up, let_go),
        Publisher(settings) as publisher,
        running(audit, quick(chosen)) as member,
    ):
        publisher.publish(uploaded(name="slow")).result(10)
        wait_until(lambda: member.runtime.running() == 1, what="the handler's start")
        begun = time.monotonic()
        before = lag.group_state(settings, "audit").members
        for _ in range(200):
            publisher.publish(uploaded(name="quick"))
        publisher.flush(10)
        wait_until(lambda: notes(database) == {"quick": 200}, what="the others, before the slow one has ended")
        passes(begun + 1.5 * POLL_MS / 1000 - time.monotonic())
        let_go()
        rows = await_effects(database, 201)
        assert lag.group_state(settings, "audit").members == before
        assert len(before) == 1
        assert {row[2] for row in rows} == {1}
        wait_until(lambda: behind(settings) == 0, what="lag 0")


def test_a_handler_that_never_returns_is_named_and_the_others_flow_up_to_the_bound(
    settings: Settings, running: Running, database: psycopg.Connection, caplog: pytest.LogCaptureFixture
) -> None:
    audit, gate = ConsumerGroup("audit"), threading.Event()
    limits = quick(settings, max_in_flight=100, concurrency=4)
    stuck = uploaded(name="stuck")

    @audit.handler(DocumentUploaded)
    def handle(event: DocumentUploaded, ctx: Context) -> None:
        if event.name == "stuck":
            gate.wait()
        note(event, ctx)

    with Publisher(settings) as publisher, running(audit, limits) as member:
        place = publisher.publish(stuck).result(10)
        for _ in range(1000):
            publisher.publish(uploaded(name="other"))
        publisher.flush(10)
        wait_until(lambda: notes(database) == {"other": 1000}, what="the effects of the other keys")
        seen = wait_until(lambda: (found := member.runtime.health().body)["stuck"] and found, what="the stuck handler")
        one = seen["stuck"][0]
        assert (one["partition"], one["offset"], one["key"]) == (place.partition, place.offset, str(stuck.document_id))
        assert "in handle" in one["where"]
        head = next(
            part["head"]
            for part in seen["partitions"]
            if (part["topic"], part["partition"]) == ("documents", place.partition)
        )
        assert (head["offset"], head["doing"]) == (place.offset, "running")
        assert seen["reasons"] == []
        labels = {"group": "audit", "topic": "documents", "partition": str(place.partition)}
        named = {**labels, "offset": str(place.offset), "key": str(stuck.document_id)}
        assert REGISTRY.get_sample_value("offsetzero_stuck_handler_seconds", named) >= 1  # type: ignore[operator]
        assert REGISTRY.get_sample_value("offsetzero_head_of_line_seconds", labels) > 0  # type: ignore[operator]
        for _ in range(150):
            publisher.publish(uploaded(stuck.document_id, name="behind"))
        publisher.flush(10)
        wait_until(lambda: member.runtime._dispatcher.in_flight == 100, what="the bound")  # type: ignore[union-attr]
        gate.set()
        await_effects(database, 1151)
        wait_until(lambda: behind(settings) == 0, what="lag 0")
        wait_until(lambda: not member.runtime.health().body["stuck"], what="health without it")
        assert REGISTRY.get_sample_value("offsetzero_stuck_handler_seconds", named) is None
    rows = [row[1] for row in effects(database) if row[0] == stuck.document_id]
    assert rows == ["stuck", *["behind"] * 150]
    said = caplog.text
    assert said.count("handler stuck") == 1
    assert said.count("stuck handler ended") == 1


# --- a limit of time


def hung(gate: threading.Event, **options: Any) -> ConsumerGroup:
    """A group whose first attempt of an event named `stuck` waits for the gate, then writes, or tries to."""
    audit = ConsumerGroup("audit", tiers=TIERS, timeout=1.0, **options)

    @audit.handler(DocumentUploaded)
    def handle(event: DocumentUploaded, ctx: Context) -> None:
        note(event, ctx, "before")
        if event.name == "stuck" and ctx.attempt == 1:
            assert gate.wait(60)
            note(event, ctx, "late")
        note(event, ctx)

    return audit


def hung_async(gate: threading.Event, **options: Any) -> ConsumerGroup:
    """The same as an async function that does not heed that it is cancelled."""
    audit = ConsumerGroup("audit", tiers=TIERS, timeout=1.0, **options)

    @audit.handler(DocumentUploaded)
    async def handle(event: DocumentUploaded, ctx: Context) -> None:
        insert = functools.partial(ctx.connection.execute, INSERT)
        await insert((event.document_id, "before", ctx.attempt))
        if event.name == "stuck" and ctx.attempt == 1:
            while not gate.is_set():
                with contextlib.suppress(asyncio.CancelledError):
                    await asyncio.sleep(0.01)
            await insert((event.document_id, "late", ctx.attempt))
        await insert((event.document_id, event.name, ctx.attempt))

    return audit


def hung_thread(gate: threading.Event, **options: Any) -> ConsumerGroup:
    """A sync handler of a group with an event loop: it hangs in a thread of the executor."""
    audit = hung(gate, **options)

    @audit.prepare(DocumentUploaded)
    async def look(event: DocumentUploaded, ctx: Context) -> None:
        await asyncio.sleep(0)

    return audit


@pytest.mark.parametrize("make", [hung, hung_async, hung_thread])
def test_a_handler_over_its_time_is_retried_and_what_it_does_later_has_no_effect(
    make: Callable[..., ConsumerGroup], settings: Settings, running: Running, database: psycopg.Connection
) -> None:
    gate = threading.Event()
    with Publisher(settings) as publisher, running(make(gate, concurrency=2), quick(settings)) as member:
        documents = [uploaded(name="stuck") for _ in range(6)]  # more than there are places: each is given up in turn
        for one in documents:
            publisher.publish(one)
        publisher.flush(10)
        rows = await_effects(database, 12)
        assert {row[2] for row in rows} == {2}
        assert Counter(row[1] for row in rows) == {"before": 6, "stuck": 6}
        assert member.runtime.health().body["handlers"]["given_up"] > 0
        gate.set()
        wait_until(lambda: member.runtime.health().body["handlers"]["given_up"] == 0, what="the end of the late ones")
        publisher.publish(uploaded(name="after")).result(10)
        wait_until(lambda: notes(database)["after"] == 1, what="that it goes on")
        wait_until(lambda: behind(settings) == 0, what="lag 0")
    assert notes(database) == {"before": 7, "stuck": 6, "after": 1}
    outcomes = database.execute("SELECT outcome, count(*) FROM processed_events GROUP BY 1").fetchall()
    assert outcomes == [("applied", 7)]


def test_a_cancelled_async_handler_gives_its_place_and_its_connection_back(
    settings: Settings, running: Running, database: psycopg.Connection
) -> None:
    audit = ConsumerGroup("audit", tiers=TIERS, timeout=1.0, concurrency=2)

    @audit.handler(DocumentUploaded)
    async def handle(event: DocumentUploaded, ctx: Context) -> None:
        await ctx.connection.execute(INSERT, (event.document_id, event.name, ctx.attempt))
        if ctx.attempt == 1:
            await ctx.connection.execute("SELECT pg_sleep(600)")

    with Publisher(settings) as publisher, running(audit, quick(settings)) as member:
        for _ in range(10):
            publisher.publish(uploaded(name="slow"))
        rows = await_effects(database, 10)
        assert {row[2] for row in rows} == {2}
        wait_until(lambda: member.runtime.health().body["handlers"]["given_up"] == 0, what="the end of them all")
        sleeping = (
            "SELECT count(*) FROM pg_stat_activity "
            "WHERE pid <> pg_backend_pid() AND query LIKE '%pg_sleep(600)%' AND state = 'active'"
        )
        wait_until(lambda: database.execute(sleeping).fetchone() == (0,), what="the end of the statements")
        wait_until(lambda: behind(settings) == 0, what="lag 0")


def test_the_last_attempt_is_settled_though_the_late_handler_holds_the_row_of_its_event(
    settings: Settings, running: Running, database: psycopg.Connection
) -> None:
    """The claim of the event is in the transaction of a handler that sits in a statement: it has to be taken away."""
    audit = ConsumerGroup("audit", tiers=[], timeout=1.0)

    @audit.handler(DocumentUploaded)
    def handle(event: DocumentUploaded, ctx: Context) -> None:
        note(event, ctx)
        if event.name == "stuck":
            ctx.connection.execute("SELECT pg_sleep(600)")

    with Publisher(settings) as publisher, running(audit, quick(settings)) as member:
        publisher.publish(uploaded(name="stuck")).result(10)
        publisher.publish(uploaded(name="other")).result(10)
        (letter,) = await_dead_letters(settings, "audit", 1, 20)
        assert letter.reason == "handler-timeout"
        wait_until(lambda: behind(settings) == 0, what="lag 0")
        wait_until(
            lambda: member.runtime.health().body["handlers"]["given_up"] == 0, 10, what="the end of the late one"
        )
    assert notes(database) == {"other": 1}
    outcomes = database.execute("SELECT outcome FROM processed_events ORDER BY 1").fetchall()
    assert outcomes == [("applied",), ("dead-lettered",)]


class Gate:
    """Holds up one thread at a place in the runtime."""

    def __init__(self) -> None:
        self.reached, self.go = threading.Event(), threading.Event()

    def wait(self) -> None:
        self.reached.set()
        assert self.go.wait(60)


@pytest.mark.parametrize("cut", [True, False], ids=["cut off", "with its connection"])
def test_a_limit_that_comes_before_the_commit_wins(
    cut: bool, settings: Settings, running: Running, database: psycopg.Connection, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The handler has returned, and its worker stands before the point of no return."""
    audit, gate, leave = ConsumerGroup("audit", tiers=TIERS, timeout=1.0), Gate(), AtWork.leave

    def held_up(at_work: AtWork) -> None:
        if not gate.reached.is_set():
            gate.wait()
        leave(at_work)

    monkeypatch.setattr(AtWork, "leave", held_up)
    if not cut:
        monkeypatch.setattr(AtWork, "cut", lambda _: None)

    @audit.handler(DocumentUploaded)
    def handle(event: DocumentUploaded, ctx: Context) -> None:
        note(event, ctx)

    with Publisher(settings) as publisher, running(audit, quick(settings)) as member:
        publisher.publish(uploaded(name="raced")).result(10)
        wait_until(lambda: member.runtime.health().body["handlers"]["given_up"] == 1, what="the limit")
        gate.go.set()
        wait_until(lambda: member.runtime.health().body["handlers"]["given_up"] == 0, what="the end of the late one")
        await_effects(database, 1)
        wait_until(lambda: behind(settings) == 0, what="lag 0")
    assert [row[2] for row in effects(database)] == [2]


def test_a_handler_that_has_returned_wins_however_long_the_commit_takes(
    settings: Settings, running: Running, database: psycopg.Connection, monkeypatch: pytest.MonkeyPatch
) -> None:
    audit, gate = ConsumerGroup("audit", tiers=TIERS, timeout=1.0), Gate()
    effects_of_a_group = effects_of_databases.DatabaseEffects
    complete = effects_of_a_group._complete

    def held_up(*arguments: Any) -> Any:
        gate.wait()
        return complete(*arguments)

    monkeypatch.setattr(effects_of_a_group, "_complete", held_up)

    @audit.handler(DocumentUploaded)
    def handle(event: DocumentUploaded, ctx: Context) -> None:
        note(event, ctx)

    with Publisher(settings) as publisher, running(audit, quick(settings)) as member:
        publisher.publish(uploaded(name="raced")).result(10)
        assert gate.reached.wait(60)
        wait_until(lambda: member.runtime.health().body["stuck"], what="that it takes long")
        wait_until(lambda: member.runtime.health().body["stuck"][0]["seconds"] > 2, what="twice the limit")
        assert member.runtime.health().body["handlers"]["given_up"] == 0
        gate.go.set()
        rows = await_effects(database, 1)
        wait_until(lambda: behind(settings) == 0, what="lag 0")
    assert [row[2] for row in rows] == [1]
    retried = [one.high for one in lag.group_offsets(settings, "audit") if "retry" in one.topic]
    assert sum(retried) == 0


def test_of_a_batch_over_its_time_only_the_event_at_fault_is_retried(
    settings: Settings, running: Running, database: psycopg.Connection
) -> None:
    audit, gate = ConsumerGroup("audit", tiers=TIERS, timeout=1.0, concurrency=2), threading.Event()

    @audit.batch(DocumentUploaded, size=50)
    def handle(events: list[DocumentUploaded], ctx: BatchContext) -> None:
        for event, one in zip(events, ctx.contexts, strict=True):
            if event.name == "stuck" and one.attempt == 1:
                gate.wait()
            ctx.connection.execute(INSERT, (event.document_id, event.name, one.attempt))

    with Publisher(settings) as publisher:
        for number in range(200):
            publisher.publish(uploaded(name="stuck" if number == 100 else "other"))
    with running(audit, quick(settings)):
        rows = await_effects(database, 200)
        wait_until(lambda: behind(settings) == 0, what="lag 0")
        gate.set()
    assert Counter((row[1], row[2]) for row in rows) == {("other", 1): 199, ("stuck", 2): 1}
    assert len(effects(database)) == 200


def test_what_a_late_handler_publishes_is_not_published(settings: Settings, running: Running) -> None:
    """A group without a database: its outputs are appended when the handler has returned in time."""
    audit, gate = ConsumerGroup("audit", tiers=TIERS, timeout=1.0, database=False), threading.Event()
    ended: list[int] = []

    @audit.handler(DocumentUploaded)
    def handle(event: DocumentUploaded, ctx: Context) -> None:
        if ctx.attempt == 1:
            gate.wait()
        deleted = DocumentDeleted(document_id=event.document_id, tenant_id=str(ctx.attempt), deleted_at=SYSTEM.now())
        ctx.publish(deleted)
        ended.append(ctx.attempt)

    with Publisher(settings) as publisher, running(audit, quick(settings)) as member:
        publisher.publish(uploaded(name="stuck")).result(10)
        wait_until(lambda: ended == [2], what="the second attempt")
        gate.set()
        wait_until(lambda: ended == [2, 1], what="the end of the first")
        wait_until(lambda: member.runtime.health().body["handlers"]["given_up"] == 0, what="its worker's end")
        wait_until(lambda: behind(settings) == 0, what="lag 0")
    ends = {one.topic: one.high for one in lag.group_offsets(settings, "audit", ["documents"])}
    assert sum(one.high for one in lag.group_offsets(settings, "audit", ["documents"])) == 2, ends


def test_a_time_out_while_the_database_is_away_counts_no_attempt(
    settings: Settings, running: Running, postgres_url: str
) -> None:
    url = settings.database_url.get_secret_value()
    with psycopg.connect(url, autocommit=True) as connection:
        connection.execute("CREATE TABLE effects (n bigserial, document_id uuid, note text, attempt int)")
    audit, gate, calls = ConsumerGroup("audit", tiers=TIERS, timeout=1.0), Gate(), list[int]()

    @audit.prepare(DocumentUploaded)
    def look(event: DocumentUploaded, ctx: Context) -> None:
        calls.append(ctx.attempt)
        if len(calls) == 1:
            gate.wait()

    @audit.handler(DocumentUploaded)
    def handle(event: DocumentUploaded, ctx: Context) -> None:
        note(event, ctx)

    with Publisher(settings) as publisher, running(audit, quick(settings)) as member:
        publisher.publish(uploaded(name="held up")).result(10)
        assert gate.reached.wait(60)
        with database_away(postgres_url, url.rpartition("/")[2]):
            wait_until(lambda: member.runtime.health().body["handlers"]["given_up"] == 1, what="the limit")
            wait_until(lambda: "waiting" in doings(member), what="that it waits for the database")
        with psycopg.connect(url, autocommit=True) as connection:
            rows = await_effects(connection, 1)
        gate.go.set()
        wait_until(lambda: behind(settings) == 0, what="lag 0")
    assert [row[2] for row in rows] == [1]
    assert set(calls) == {1}


def test_a_group_stops_when_too_many_handlers_that_were_given_up_do_not_end(
    settings: Settings, topics: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(watcher, "MAX_LATE", 3)
    audit, gate = ConsumerGroup("audit", tiers=TIERS, timeout=0.2, database=False, concurrency=2), threading.Event()

    @audit.handler(DocumentUploaded)
    def handle(event: DocumentUploaded, ctx: Context) -> None:
        gate.wait()

    with Publisher(settings) as publisher:
        for _ in range(10):
            publisher.publish(uploaded())
    member = RunningGroup(audit, quick(settings))
    wait_until(lambda: member.error is not None, what="the end of the group")
    gate.set()
    with pytest.raises(GroupStopped, match="given up"):
        member.stop()


# --- what stands still


def test_an_event_loop_that_is_held_up_is_named_and_ends_the_group(
    settings: Settings, topics: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(health, "SILENT_SECONDS", 1.0)
    audit, gate = ConsumerGroup("audit", database=False), threading.Event()

    @audit.handler(DocumentUploaded)
    async def handle(event: DocumentUploaded, ctx: Context) -> None:
        gate.wait()  # in an async function nothing else can run

    with Publisher(settings) as publisher:
        publisher.publish(uploaded())
    member = RunningGroup(audit, quick(settings, stall_seconds=4.0))
    seen = wait_until(lambda: (found := member.runtime.health()).alive or found, what="health")
    seen = wait_until(lambda: not (found := member.runtime.health()).alive and found, what="that it is not alive")
    assert "the event loop has been held up" in seen.body["reasons"][0]
    assert "in handle" in seen.body["reasons"][0]
    wait_until(lambda: member.error is not None, what="the end of the group")
    gate.set()
    with pytest.raises(GroupStopped, match="must not block"):
        member.stop()


@pytest.mark.parametrize("protocol", ["consumer", "classic"])
def test_a_partition_that_is_not_fetched_for_no_known_reason_ends_the_group(
    protocol: str, settings: Settings, topics: None
) -> None:
    """quix-streams#1124, arroyo#304: it stayed paused for ever, and the app looked healthy."""
    kafka = settings.kafka.model_copy(update={"group_protocol": protocol})
    audit, seen = ConsumerGroup("audit", database=False), list[str]()

    @audit.handler(DocumentUploaded)
    def handle(event: DocumentUploaded, ctx: Context) -> None:
        seen.append(event.name)

    limits = quick(settings.model_copy(update={"kafka": kafka}), stall_seconds=4.0)
    with Publisher(settings) as publisher:
        member = RunningGroup(audit, limits)
        place = publisher.publish(uploaded(name="first")).result(10)
        wait_until(lambda: seen == ["first"], what="the first event")
        passes(6.0)  # more than the bound without anything to do
        assert member.error is None
        topic = limits.kafka.namespace + place.topic.removeprefix(limits.kafka.namespace)
        consumer = member.runtime._watcher._member._consumer  # type: ignore[union-attr, attr-defined]
        consumer.pause([TopicPartition(topic, number) for number in range(limits.kafka.partitions)])
        publisher.publish(uploaded(name="second")).result(10)
        wait_until(lambda: member.error is not None, what="the end of the group")
    with pytest.raises(GroupStopped, match=r"stalled: documents/\d has not moved for .* nothing is fetched"):
        member.stop()
    assert seen == ["first"]
    assert not member.runtime.health().alive
