"""What a group promises about effects: once, together with the events they publish, and never half."""

import contextlib
import json
from collections.abc import Callable
from typing import Any
from uuid import uuid4

import psycopg
from confluent_kafka.admin import AdminClient
from kafka.conftest import await_dead_letters, await_effects, effects, uploaded

from offsetzero import metrics
from offsetzero.consumers.context import Context
from offsetzero.consumers.group import ConsumerGroup
from offsetzero.producers.log import LogProducer
from offsetzero.producers.publisher import Publisher
from offsetzero.producers.transactions import TransactionalProducer
from offsetzero.retry import dead_letters
from offsetzero.retry.failures import Permanent, Poison, Transient
from offsetzero.schemas.cloudevents import AVRO, to_headers
from offsetzero.schemas.codec import Codec
from offsetzero.schemas.documents import DocumentDeleted, DocumentUploaded
from offsetzero.schemas.metadata import Metadata
from offsetzero.settings import Settings
from offsetzero.topics import cluster, lag
from offsetzero.topics.catalogue import group_topics
from offsetzero.topics.names import Names
from support import wait_until

Running = Callable[..., contextlib.AbstractContextManager[Any]]


def note(ctx: Context, event: DocumentUploaded, text: str = "") -> None:
    ctx.connection.execute(
        "INSERT INTO effects (document_id, note, attempt) VALUES (%s, %s, %s)",
        (event.document_id, text or event.name, ctx.attempt),
    )


def test_the_same_event_id_published_twice_has_one_effect(
    settings: Settings, running: Running, database: psycopg.Connection
) -> None:
    audit = ConsumerGroup("audit")
    audit.handler(DocumentUploaded)(lambda event, ctx: note(ctx, event))
    event, after = uploaded(), uploaded()
    with Publisher(settings) as publisher:
        for _ in range(2):
            publisher.publish(event, event_id="the-same")
        publisher.publish(after, event_id="another")
    with running(audit):
        await_effects(database, 2)
    assert sorted(row[0] for row in effects(database)) == sorted([event.document_id, after.document_id])
    outcomes = database.execute("SELECT event_id, outcome FROM processed_events WHERE group_name = 'audit'").fetchall()
    assert sorted(outcomes) == [("another", "applied"), ("the-same", "applied")]


def test_one_event_id_of_two_sources_is_two_events(
    settings: Settings, running: Running, database: psycopg.Connection
) -> None:
    audit = ConsumerGroup("audit")
    audit.handler(DocumentUploaded)(lambda event, ctx: note(ctx, event))
    with Publisher(settings) as publisher:
        publisher.publish(uploaded(), event_id="1", source="/a")
        publisher.publish(uploaded(), event_id="1", source="/b")
    with running(audit):
        await_effects(database, 2)


def test_two_groups_each_have_their_own_effects_and_offsets(
    settings: Settings, running: Running, database: psycopg.Connection
) -> None:
    first, second = ConsumerGroup("first"), ConsumerGroup("second")
    first.handler(DocumentUploaded)(lambda event, ctx: note(ctx, event, "first"))
    second.handler(DocumentUploaded)(lambda event, ctx: note(ctx, event, "second"))
    with Publisher(settings) as publisher:
        publisher.publish(uploaded())
    with running(first):
        await_effects(database, 1)
    with running(second):
        await_effects(database, 2)
    assert [row[1] for row in effects(database)] == ["first", "second"]


def test_events_of_one_key_are_handled_in_order_while_keys_run_at_once(
    settings: Settings, running: Running, database: psycopg.Connection
) -> None:
    audit = ConsumerGroup("audit", concurrency=8)
    audit.handler(DocumentUploaded)(lambda event, ctx: note(ctx, event))
    documents = [uuid4() for _ in range(20)]
    with Publisher(settings) as publisher:
        for number in range(400):
            publisher.publish(uploaded(documents[number % 20], name=str(number)))
    with running(audit):
        rows = await_effects(database, 400)
    for document in documents:
        numbers = [int(text) for found, text, _ in rows if found == document]
        assert numbers == sorted(numbers)
        assert len(numbers) == 20


def test_async_handlers_with_prepare_and_published_events(
    settings: Settings, running: Running, database: psycopg.Connection
) -> None:
    audit = ConsumerGroup("audit")

    @audit.prepare(DocumentUploaded)
    async def look(event: DocumentUploaded, ctx: Context) -> str:
        assert ctx.connection is None, "no transaction is open during slow work"
        return f"prepared {event.name}"

    @audit.handler(DocumentUploaded)
    async def keep(event: DocumentUploaded, ctx: Context) -> None:
        await ctx.connection.execute(
            "INSERT INTO effects (document_id, note, attempt) VALUES (%s, %s, 1)", (event.document_id, ctx.prepared)
        )
        ctx.publish(DocumentDeleted(document_id=event.document_id, tenant_id="acme", deleted_at=event.uploaded_at))

    event = uploaded(name="x")
    with Publisher(settings) as publisher:
        publisher.publish(event, event_id="cause", correlation_id="c-1")
    with running(audit):
        assert await_effects(database, 1)[0][1] == "prepared x"
    rows = database.execute("SELECT type, aggregateid, headers FROM outbox").fetchall()
    assert [(row[0], row[1]) for row in rows] == [("document.deleted", str(event.document_id))]
    shown = json.dumps(rows[0][2])
    assert "cause" in shown
    assert "c-1" in shown


def test_a_failing_handler_leaves_nothing_behind_and_is_retried_tier_by_tier(
    settings: Settings, running: Running, database: psycopg.Connection
) -> None:
    audit = ConsumerGroup("audit")
    attempts: list[int] = []

    @audit.handler(DocumentUploaded)
    def fail_twice(event: DocumentUploaded, ctx: Context) -> None:
        note(ctx, event)
        attempts.append(ctx.attempt)
        if ctx.attempt < 3:
            raise Transient("busy")

    with Publisher(settings) as publisher:
        publisher.publish(uploaded())
    with running(audit):
        assert await_effects(database, 1)[0][2] == 3
    assert attempts == [1, 2, 3]
    assert list(dead_letters.read(settings, "audit")) == []


def test_the_last_failure_makes_a_dead_letter_with_the_original_bytes(
    settings: Settings, running: Running, database: psycopg.Connection
) -> None:
    audit = ConsumerGroup("audit")

    @audit.handler(DocumentUploaded)
    def fail(event: DocumentUploaded, ctx: Context) -> None:
        raise Transient("busy", "come back later")

    event = uploaded()
    with Publisher(settings) as publisher:
        publisher.publish(event, event_id="dead").result(10)
    with running(audit):
        [letter] = await_dead_letters(settings, "audit", 1)
        wait_until(lambda: _outcomes(database) == [("dead", "dead-lettered")])
    assert (letter.failure, letter.reason, letter.detail) == ("transient", "busy", "come back later")
    assert letter.hop.attempt == 3
    assert letter.hop.origin.topic == "documents"
    assert letter.key == str(event.document_id).encode()
    assert letter.meta is not None
    assert letter.meta.id == "dead"


def test_retry_and_dead_letter_records_carry_the_time_of_their_append(
    settings: Settings, running: Running, database: psycopg.Connection
) -> None:
    """apache/kafka#22849: an old timestamp met retention, and dead letters vanished."""
    old = 1_000_000_000_000
    with LogProducer(settings) as producer:
        topic = Names(settings.kafka.namespace).topic("documents")
        producer.produce(topic, key=b"k", value=b"poison", timestamp_ms=old).result(10)
    audit = ConsumerGroup("audit")
    audit.handler(DocumentUploaded)(lambda event, ctx: note(ctx, event))
    with running(audit):
        [letter] = await_dead_letters(settings, "audit", 1)
    assert letter.failed_at_ms > old + 1_000_000
    assert letter.hop.timestamp_ms == old


def test_nothing_is_done_before_its_dead_letter_is_in_the_log(
    settings: Settings, running: Running, database: psycopg.Connection
) -> None:
    """arroyo (strict flush), spring-kafka#1494: committed past a dead letter that was never delivered."""
    audit = ConsumerGroup("audit")
    audit.handler(DocumentUploaded)(lambda event, ctx: note(ctx, event))
    dlq, admin = Names(settings.kafka.namespace).topic("audit.dlq"), AdminClient(settings.kafka.client_config())
    with running(audit):
        admin.delete_topics([dlq])[dlq].result(10)
        with LogProducer(settings) as producer:
            topic = Names(settings.kafka.namespace).topic("documents")
            producer.produce(topic, key=b"k", value=b"poison").result(10)
        with Publisher(settings) as publisher:
            publisher.publish(uploaded())
        await_effects(database, 1)
        refused = metrics.APPENDS_FAILED.labels("audit", "audit.dlq")._value
        wait_until(lambda: refused.get() > 0, 60, what="a refused append")
        assert _outcomes(database) == [(_outcomes(database)[0][0], "applied")]
        assert sum(one.lag for one in lag.group_offsets(settings, "audit", ["documents"])) >= 1
        cluster.ensure(settings, group_topics("audit", 6, ["retry-1m", "retry-10m"]))
        await_dead_letters(settings, "audit", 1, 60)
        wait_until(lambda: sum(one.lag for one in lag.group_offsets(settings, "audit")) == 0, what="lag 0")


def test_aborted_transactions_are_not_read_and_do_not_count_as_lag(
    settings: Settings, running: Running, database: psycopg.Connection
) -> None:
    """parallel-consumer#329: transaction markers, and the lag is never 0."""
    audit = ConsumerGroup("audit")
    audit.handler(DocumentUploaded)(lambda event, ctx: note(ctx, event))
    topic = Names(settings.kafka.namespace).topic("documents")
    with TransactionalProducer(settings, "test") as producer:
        for name, end in [("kept", producer.commit), ("dropped", producer.abort)]:
            event = uploaded(name=name)
            producer.begin()
            headers = to_headers(Metadata(id=name, source="/t", type=event.event_type), AVRO)
            producer.produce(topic, key=event.key, value=Codec().encode(event), headers=headers).result(10)
            end()
    with running(audit):
        await_effects(database, 1)
        wait_until(lambda: sum(one.lag for one in lag.group_offsets(settings, "audit")) == 0, what="lag 0")
    assert [row[1] for row in effects(database)] == ["kept"]


def test_a_bug_gets_one_more_try_and_then_a_dead_letter_with_its_stack(
    settings: Settings, running: Running, database: psycopg.Connection
) -> None:
    audit = ConsumerGroup("audit")
    attempts: list[int] = []

    @audit.handler(DocumentUploaded)
    def broken(event: DocumentUploaded, ctx: Context) -> None:
        attempts.append(ctx.attempt)
        raise ZeroDivisionError("in the handler")

    with Publisher(settings) as publisher:
        publisher.publish(uploaded())
    with running(audit):
        [letter] = await_dead_letters(settings, "audit", 1)
    assert attempts == [1, 2]
    assert letter.failure == "bug"
    assert letter.stack.rstrip().endswith("ZeroDivisionError")
    assert "in the handler" not in letter.stack.replace('("in the handler")', ""), (
        "what it says stays in the process log"
    )
    assert "broken" in letter.stack


def test_permanent_failures_and_poison(settings: Settings, running: Running, database: psycopg.Connection) -> None:
    audit = ConsumerGroup("audit")

    @audit.handler(DocumentUploaded)
    def judge(event: DocumentUploaded, ctx: Context) -> None:
        note(ctx, event)
        if event.name == "permanent":
            raise Permanent("password-needed")
        if event.name == "poison":
            raise Poison("corrupt")

    with Publisher(settings) as publisher:
        for name in ("permanent", "poison", "good"):
            publisher.publish(uploaded(name=name), event_id=name)
    with running(audit):
        wait_until(lambda: len(_outcomes(database)) == 3)
    assert _outcomes(database) == [("good", "applied"), ("permanent", "failed"), ("poison", "dead-lettered")]
    assert [row[1] for row in effects(database)] == ["good"]
    assert [letter.reason for letter in dead_letters.read(settings, "audit")] == ["corrupt"]


def test_a_handler_that_swallows_a_failed_statement_is_a_bug_not_a_lost_effect(
    settings: Settings, running: Running, database: psycopg.Connection
) -> None:
    """COMMIT of a failed transaction is a ROLLBACK that reports nothing."""
    audit = ConsumerGroup("audit")

    @audit.handler(DocumentUploaded)
    def swallow(event: DocumentUploaded, ctx: Context) -> None:
        note(ctx, event)
        with contextlib.suppress(psycopg.Error):
            ctx.connection.execute("SELECT 1 / 0")

    with Publisher(settings) as publisher:
        publisher.publish(uploaded())
    with running(audit):
        [letter] = await_dead_letters(settings, "audit", 1)
    assert letter.reason == "transaction-failed"
    assert effects(database) == []


def test_a_handler_cannot_end_the_transaction_itself(
    settings: Settings, running: Running, database: psycopg.Connection
) -> None:
    audit = ConsumerGroup("audit")

    @audit.handler(DocumentUploaded)
    def commit(event: DocumentUploaded, ctx: Context) -> None:
        note(ctx, event)
        ctx.connection.commit()

    with Publisher(settings) as publisher:
        publisher.publish(uploaded())
    with running(audit):
        [letter] = await_dead_letters(settings, "audit", 1)
    assert letter.reason == "ProgrammingError"
    assert effects(database) == []


def _outcomes(database: psycopg.Connection) -> list[tuple[str, str]]:
    rows = database.execute("SELECT event_id, outcome FROM processed_events").fetchall()
    return sorted((event_id, outcome) for event_id, outcome in rows)
