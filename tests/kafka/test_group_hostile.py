"""Handlers and records at their worst: each ends as an outcome of its record, and the group goes on."""

import asyncio
import contextlib
import secrets
import sys
from collections import Counter
from collections.abc import Callable
from typing import Any, NoReturn

import psycopg
import pytest
from kafka.conftest import await_dead_letters, await_effects, effects, uploaded

from offsetzero import metrics
from offsetzero.consumers.context import Context
from offsetzero.consumers.group import ConsumerGroup
from offsetzero.producers.log import LogProducer
from offsetzero.producers.publisher import Publisher
from offsetzero.retry import dead_letters
from offsetzero.retry.classify import of_status
from offsetzero.schemas.documents import DocumentUploaded
from offsetzero.settings import Settings
from offsetzero.topics import cluster, lag
from offsetzero.topics.names import Names
from offsetzero.topics.plan import AlterConfig, ConfigChange, Plan
from support import wait_until

Running = Callable[..., contextlib.AbstractContextManager[Any]]


class Unspeakable(Exception):
    def __str__(self) -> str:
        raise RuntimeError("not even its text can be had")


class Asynchronous:
    """A callable that is async, and does not look it."""

    async def __call__(self) -> None: ...


def raise_surrogate() -> NoReturn:
    raise ValueError("a file name that is not UTF-8: \udcff")


def raise_unspeakable() -> NoReturn:
    raise Unspeakable


def raise_nul() -> NoReturn:
    raise ValueError("nul \0 and " + "very " * 10_000 + "long")


HOSTILE: dict[str, Callable[[], Any]] = {
    "surrogate": raise_surrogate,
    "unspeakable": raise_unspeakable,
    "nul and long": raise_nul,
    "exit": lambda: sys.exit(3),
    "awaitable": Asynchronous(),
}


def write(ctx: Context, event: DocumentUploaded) -> None:
    ctx.connection.execute(
        "INSERT INTO effects (document_id, note, attempt) VALUES (%s, %s, %s)",
        (event.document_id, event.name, ctx.attempt),
    )


def caught_up(settings: Settings) -> bool:
    return all(one.lag == 0 for one in lag.group_offsets(settings, "audit"))


def test_hostile_handlers_end_as_dead_letters_of_their_records(
    settings: Settings, running: Running, database: psycopg.Connection, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("CRITICAL", "offsetzero")  # lines that are no UTF-8 would end the worker that reports them
    audit = ConsumerGroup("audit", step=True)

    @audit.handler(DocumentUploaded)
    def act(event: DocumentUploaded, ctx: Context) -> Any:
        write(ctx, event)
        return HOSTILE[event.name]() if event.name in HOSTILE else None

    with Publisher(settings) as publisher:
        for name in (*HOSTILE, "good"):
            publisher.publish(uploaded(name=name), event_id=name)
    with running(audit):
        letters = await_dead_letters(settings, "audit", len(HOSTILE))
        wait_until(lambda: caught_up(settings), what="lag 0")
    assert {letter.meta.id for letter in letters if letter.meta} == set(HOSTILE)
    assert {letter.failure for letter in letters} == {"bug"}
    assert [row[1] for row in effects(database)] == ["good"]


def test_an_async_handler_that_cancels_itself_fails_like_any_other(
    settings: Settings, running: Running, database: psycopg.Connection
) -> None:
    audit = ConsumerGroup("audit")

    @audit.handler(DocumentUploaded)
    async def act(event: DocumentUploaded, ctx: Context) -> None:
        if event.name == "cancelled":
            raise asyncio.CancelledError
        await ctx.connection.execute(
            "INSERT INTO effects (document_id, note, attempt) VALUES (%s, %s, 1)", (event.document_id, event.name)
        )

    with Publisher(settings) as publisher:
        publisher.publish(uploaded(name="cancelled"))
        publisher.publish(uploaded(name="good"))
    with running(audit):
        [letter] = await_dead_letters(settings, "audit", 1)
        wait_until(lambda: caught_up(settings), what="lag 0")
    assert letter.reason == "CancelledError"
    assert [row[1] for row in effects(database)] == ["good"]


def test_stop_iteration_in_a_thread_of_an_async_group_is_a_bug_like_others(
    settings: Settings, running: Running, database: psycopg.Connection
) -> None:
    """asyncio's futures refuse StopIteration: the await never ended, and neither did the group."""
    audit = ConsumerGroup("audit")

    @audit.prepare(DocumentUploaded)
    def first(event: DocumentUploaded, ctx: Context) -> Any:
        return next(iter([]))

    @audit.handler(DocumentUploaded)
    async def act(event: DocumentUploaded, ctx: Context) -> None:
        raise AssertionError("prepare has failed")

    with Publisher(settings) as publisher:
        publisher.publish(uploaded())
    with running(audit):
        [letter] = await_dead_letters(settings, "audit", 1)
    assert letter.failure == "bug"
    assert "StopIteration" in letter.stack


def test_refused_appends_hold_no_worker(settings: Settings, running: Running, database: psycopg.Connection) -> None:
    """Eight failing records and a retry topic that takes nothing stopped everything: each held a worker."""
    audit = ConsumerGroup("audit", concurrency=2)
    calls: Counter[str] = Counter()

    @audit.handler(DocumentUploaded)
    def act(event: DocumentUploaded, ctx: Context) -> None:
        calls[event.name] += 1
        if event.name == "bad" and ctx.attempt == 1:
            raise of_status(503)
        write(ctx, event)

    with running(audit):
        for topic in ("audit.retry-1m", "audit.dlq"):  # what is too large for the one goes to the other
            _limit(settings, topic, 100)
    with Publisher(settings) as publisher:
        for name in ["bad"] * 8 + ["good"] * 50:
            publisher.publish(uploaded(name=name))
    with running(audit):  # it has read all of them before a partition rests
        rows = await_effects(database, 50, 60)
        assert {name for _, name, _ in rows} == {"good"}
        refused = metrics.APPENDS_FAILED.labels("audit", "audit.retry-1m")._value
        wait_until(lambda: refused.get() >= 16, 60, what="each append refused, and tried again")
        assert calls["bad"] == 8, "a handler is not called again because its retry could not be appended"
        _limit(settings, "audit.retry-1m", 1_000_000)
        rows = await_effects(database, 58, 60)
    assert Counter((name, attempt) for _, name, attempt in rows) == {("good", 1): 50, ("bad", 2): 8}


def _limit(settings: Settings, topic: str, size: int) -> None:
    """Have the broker take records up to a size, in bytes."""
    change = ConfigChange("max.message.bytes", None, str(size))
    cluster.apply(settings, Plan((AlterConfig(topic, (change,)),), ()))


def test_an_endless_retry_after_ends_nobody(settings: Settings, running: Running, database: psycopg.Connection) -> None:
    audit = ConsumerGroup("audit", step=True)
    answers = ["inf", "nan", "1e18", "Mon, 01 Jan 99999999999999999999 00:00:00 GMT", "-5"]

    @audit.handler(DocumentUploaded)
    def act(event: DocumentUploaded, ctx: Context) -> None:
        if ctx.attempt == 1:
            raise of_status(429, event.name)
        write(ctx, event)

    with Publisher(settings) as publisher:
        for answer in answers:
            publisher.publish(uploaded(name=answer))
    with running(audit):
        rows = await_effects(database, len(answers))
    assert {(name, attempt) for _, name, attempt in rows} == {(answer, 2) for answer in answers}


def test_a_handler_that_ends_its_own_backend_consumes_attempts(
    settings: Settings, running: Running, database: psycopg.Connection
) -> None:
    audit = ConsumerGroup("audit")
    attempts: list[int] = []

    @audit.handler(DocumentUploaded)
    def act(event: DocumentUploaded, ctx: Context) -> None:
        attempts.append(ctx.attempt)
        ctx.connection.execute("SELECT pg_terminate_backend(pg_backend_pid())")

    with Publisher(settings) as publisher:
        publisher.publish(uploaded())
    with running(audit):
        [letter] = await_dead_letters(settings, "audit", 1, 60)
    assert letter.reason == "database"
    assert set(attempts) == {1, 2, 3}


def test_a_database_that_only_reads_consumes_no_attempt(
    settings: Settings, running: Running, database: psycopg.Connection
) -> None:
    audit = ConsumerGroup("audit")
    audit.handler(DocumentUploaded)(lambda event, ctx: write(ctx, event))
    name = settings.database_url.get_secret_value().rpartition("/")[2]
    database.execute(f"ALTER DATABASE {name} SET default_transaction_read_only = on")
    with Publisher(settings) as publisher:
        for _ in range(5):
            publisher.publish(uploaded()).result(10)
    with running(audit):
        wait_until(lambda: _tried(settings), what="a first try")
        database.execute(f"ALTER DATABASE {name} RESET default_transaction_read_only")
        database.execute(
            "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE datname = %s AND pid <> pg_backend_pid()",
            (name,),
        )
        rows = await_effects(database, 5)
    assert Counter(attempt for _, _, attempt in rows) == {1: 5}
    assert list(dead_letters.read(settings, "audit")) == []


def _tried(settings: Settings) -> bool:
    with psycopg.connect(settings.database_url.get_secret_value()) as connection:
        found = connection.execute(
            "SELECT count(*) FROM pg_stat_activity WHERE application_name = 'audit' AND datname = current_database()"
            " AND query LIKE 'INSERT INTO processed_events%' OR query = 'ROLLBACK'"
        ).fetchone()
        return found is not None and found[0] > 0


def test_an_event_id_longer_than_an_index_takes_has_its_effect_once(
    settings: Settings, running: Running, database: psycopg.Connection
) -> None:
    audit = ConsumerGroup("audit")
    audit.handler(DocumentUploaded)(lambda event, ctx: write(ctx, event))
    long, event = secrets.token_hex(4000), uploaded()
    with Publisher(settings) as publisher:
        for _ in range(2):
            publisher.publish(event, event_id=long)
        publisher.publish(uploaded(), event_id="behind")
    with running(audit):
        await_effects(database, 2)
        wait_until(lambda: caught_up(settings), what="lag 0")
    assert len(effects(database)) == 2


def test_poison_that_comes_twice_makes_one_dead_letter(
    settings: Settings, running: Running, database: psycopg.Connection
) -> None:
    audit = ConsumerGroup("audit")
    audit.handler(DocumentUploaded)(lambda event, ctx: write(ctx, event))
    from offsetzero.schemas import cloudevents
    from offsetzero.schemas.metadata import Metadata

    headers = cloudevents.to_headers(Metadata(id="poison", source="/s", type="document.uploaded"), cloudevents.AVRO)
    topic = Names(settings.kafka.namespace).topic("documents")
    with LogProducer(settings) as producer:
        for _ in range(2):
            producer.produce(topic, key=b"k", value=b"no avro", headers=headers).result(10)
        producer.produce(topic, key=b"k", value=None, headers=[("content-type", b"\xff\xfe")]).result(10)
    with running(audit):
        await_dead_letters(settings, "audit", 1)
        wait_until(lambda: caught_up(settings), what="lag 0")
    letters = list(dead_letters.read(settings, "audit"))
    assert len([letter for letter in letters if letter.meta and letter.meta.id == "poison"]) == 1
