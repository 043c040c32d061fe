"""Handlers that take too long, or never return: the membership is kept, other keys flow, the record is named."""

import asyncio
import contextlib
import ctypes
import functools
import threading
import time
from collections import Counter
from collections.abc import Callable
from typing import Any

import psycopg
import pytest
from kafka.conftest import RunningGroup, await_effects, effects, uploaded
from prometheus_client import REGISTRY

from offsetzero.consumers.context import Context
from offsetzero.consumers.group import ConsumerGroup
from offsetzero.producers.publisher import Publisher
from offsetzero.retry.policy import Tier
from offsetzero.schemas.documents import DocumentUploaded
from offsetzero.settings import Settings
from offsetzero.topics import lag
from support import wait_until

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


def sleeps(_ctx: Context) -> None:
    time.sleep(5)


def blocks_in_c(_ctx: Context) -> None:
    ctypes.CDLL(None).sleep(5)  # ctypes releases the interpreter's lock around the call


def waits_for_postgresql(ctx: Context) -> None:
    ctx.connection.execute("SELECT pg_sleep(5)")


# --- no limit of time


@pytest.mark.parametrize(
    ("protocol", "hold_up"),
    [
        ("consumer", sleeps),
        ("consumer", blocks_in_c),
        ("consumer", waits_for_postgresql),
        ("classic", sleeps),
    ],
)
def test_a_handler_longer_than_the_poll_interval_costs_no_membership(
    protocol: str,
    hold_up: Callable[[Context], None],
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

    with Publisher(settings) as publisher, running(audit, quick(chosen)) as member:
        publisher.publish(uploaded(name="slow")).result(10)
        wait_until(lambda: member.runtime.running() == 1, what="the handler's start")
        before = lag.group_state(settings, "audit").members
        for _ in range(200):
            publisher.publish(uploaded(name="quick"))
        publisher.flush(10)
        wait_until(lambda: notes(database) == {"quick": 200}, 4.5, what="the others, before the slow one has ended")
        rows = await_effects(database, 201)
        assert lag.group_state(settings, "audit").members == before
        assert len(before) == 1
        assert {row[2] for row in rows} == {1}
        wait_until(lambda: behind(settings) == 0, what="lag 0")


def test_a_handler_that_never_returns_is_named_and_the_others_flow_up_to_the_bound(
    settings: Settings, running: Running, database: psycopg.Connection, capsys: pytest.CaptureFixture[str]
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
    said = capsys.readouterr().out
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
