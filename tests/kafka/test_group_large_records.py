"""Records as large as topics take, and larger: they reach the dead letters, themselves or as pointers."""

import contextlib
import os
from collections.abc import Callable, Iterator
from typing import Any

import psycopg
import pytest
from commands import CommandsHere
from confluent_kafka import OFFSET_BEGINNING, Consumer, Message, TopicPartition
from kafka.conftest import await_dead_letters

from offsetzero import DeadLetter
from offsetzero.clock import SYSTEM
from offsetzero.consumers.context import Context
from offsetzero.consumers.group import ConsumerGroup
from offsetzero.errors import PublishError
from offsetzero.producers.log import ANY_SIZE, LogProducer
from offsetzero.retry import headers as retry_headers
from offsetzero.retry import pointers
from offsetzero.retry.pointers import Pointer, PointerLost
from offsetzero.retry.policy import Tier
from offsetzero.schemas import cloudevents
from offsetzero.schemas.documents import DocumentUploaded
from offsetzero.schemas.metadata import Metadata
from offsetzero.settings import Settings
from offsetzero.store.processed import Outcome
from offsetzero.topics import cluster, lag, reading
from offsetzero.topics.admin import answer, client
from offsetzero.topics.names import Names
from offsetzero.topics.plan import AlterConfig, ConfigChange, Plan
from offsetzero.topics.reading import LogRecord
from support import wait_until

Running = Callable[..., contextlib.AbstractContextManager[Any]]
SOURCE_LIMIT = 1_048_588  # the broker's default `max.message.bytes`, of a batch
TIERS = (Tier("retry-1s", 1.0),)


def event_headers(event_id: str) -> cloudevents.Headers:
    return cloudevents.to_headers(Metadata(id=event_id, source="/s", type="document.uploaded"), cloudevents.AVRO)


def limit(settings: Settings, topic: str, size: int) -> None:
    change = ConfigChange("max.message.bytes", None, str(size))
    cluster.apply(settings, Plan((AlterConfig(topic, (change,)),), ()))


def idle() -> ConsumerGroup:
    audit = ConsumerGroup("audit", tiers=TIERS)

    @audit.handler(DocumentUploaded)
    def act(event: DocumentUploaded, ctx: Context) -> None: ...

    return audit


def outcomes(database: psycopg.Connection) -> list[str]:
    return [row[0] for row in database.execute("SELECT outcome FROM processed_events").fetchall()]


@contextlib.contextmanager
def letters(settings: Settings) -> Iterator[list[Message]]:
    """The raw records of the dead-letter topic."""
    topic = Names(settings.kafka.namespace).topic("audit.dlq")
    count = cluster.partition_count(settings, ["documents"])
    consumer = Consumer({**settings.kafka.client_config(), "group.id": "x", "enable.auto.commit": False})
    consumer.assign([TopicPartition(topic, number, OFFSET_BEGINNING) for number in range(count)])
    try:
        yield wait_until(lambda: consumer.consume(1, 0.2), what="a dead letter")
    finally:
        consumer.close()


def test_a_record_as_large_as_its_source_takes_is_dead_lettered_as_itself(
    settings: Settings, running: Running, database: psycopg.Connection
) -> None:
    """spring-kafka#2549: headers that were added made it too large, and the poller stopped."""
    topic, headers = Names(settings.kafka.namespace).topic("documents"), event_headers("large")
    value = os.urandom(SOURCE_LIMIT)  # which no compression makes smaller
    with LogProducer(settings) as producer:
        for cut in range(60, 400, 4):  # what a batch costs besides
            value = value[: SOURCE_LIMIT - cut - retry_headers.size_of(headers)]
            with contextlib.suppress(PublishError):
                producer.produce(topic, key=b"k", value=value, headers=headers).result(10)
                break
    with running(idle()):
        [letter] = await_dead_letters(settings, "audit", 1)
    assert letter.value == value
    assert letter.headers == headers


def test_a_record_that_is_small_only_when_compressed_is_dead_lettered_as_itself(
    settings: Settings, running: Running, database: psycopg.Connection
) -> None:
    topic, value = Names(settings.kafka.namespace).topic("documents"), b"much of the same " * 300_000
    with LogProducer(settings, more=ANY_SIZE) as producer:
        producer.produce(topic, key=b"k", value=value, headers=event_headers("large")).result(10)
    with running(idle()):
        [letter] = await_dead_letters(settings, "audit", 1)
    assert letter.value == value


@pytest.mark.parametrize("size", [50_000, 1_000_000])
def test_a_record_that_is_too_large_for_the_dead_letters_is_one_as_a_pointer(
    settings: Settings, running: Running, database: psycopg.Connection, size: int
) -> None:
    """smallrye-reactive-messaging#2979, kafkaflow-retry-extensions#158: one such record stopped everything."""
    with running(idle()):
        limit(settings, "audit.dlq", 20_000)
    names = Names(settings.kafka.namespace)
    value, headers = os.urandom(size), [*event_headers("large"), ("mine", b"m" * 30_000), ("small", b"s"), ("no", None)]
    with LogProducer(settings) as producer:
        at = producer.produce(names.topic("documents"), key=b"k", value=value, headers=headers).result(10)
        producer.produce(names.topic("documents"), key=b"k", value=b"", headers=[("odd", b"x")]).result(10)
    with running(idle()):
        wait_until(lambda: outcomes(database).count(Outcome.DEAD_LETTERED) == 2, what="it, and what follows it")
    with letters(settings) as [letter]:
        given = reading.of_message(letter).headers
    assert letter.value() == b"", "no tombstone"
    assert letter.key() == b"k"
    assert retry_headers.size_of(given) <= retry_headers.MAX_BYTES
    assert [one for one in given if not one[0].startswith("oz_")] == [
        *event_headers("large"),
        ("small", b"s"),
        ("no", None),
    ]
    here = retry_headers.Origin("", "", letter.partition() or 0, 0)
    hop = retry_headers.read(given, here, SYSTEM.now_ms())
    assert (hop.origin.topic, hop.origin.partition, hop.origin.offset) == ("documents", at.partition, at.offset)
    assert dict(given)["oz_reason"] == b"unreadable"
    pointer = pointers.read(given)
    assert pointer == Pointer.to(value)
    found = pointers.resolve(settings, pointer, hop.origin)
    assert found == LogRecord(at.partition, at.offset, at.timestamp_ms, b"k", value, headers)
    with pytest.raises(PointerLost, match="the one that failed"):
        pointers.resolve(settings, Pointer.to(b"another"), hop.origin)
    admin, place = client(settings), TopicPartition(names.topic("documents"), at.partition, at.offset + 1)
    answer(next(iter(admin.delete_records([place]).values())), "records")
    with pytest.raises(PointerLost, match="not retained"):
        pointers.resolve(settings, pointer, hop.origin)


@pytest.mark.parametrize("transactional", [False, True], ids=["database", "transactional"])
def test_a_record_that_is_too_large_for_its_tier_is_a_dead_letter_at_once(
    settings: Settings, running: Running, database: psycopg.Connection, transactional: bool
) -> None:
    audit = ConsumerGroup("audit", tiers=TIERS, transactional=transactional)
    attempts: list[int] = []

    @audit.tombstone
    def act(key: str | None, ctx: Context) -> None:
        attempts.append(ctx.attempt)
        raise ConnectionResetError

    audit.handler(DocumentUploaded)(lambda event, ctx: None)
    with running(audit):
        limit(settings, "audit.retry-1s", 12_000)
        limit(settings, "audit.dlq", 12_000)
    headers = [("mine", os.urandom(30_000)), ("small", b"s")]
    with LogProducer(settings) as producer:
        topic = Names(settings.kafka.namespace).topic("documents")
        producer.produce(topic, key=b"k", value=None, headers=headers).result(10)
    with running(audit):
        wait_until(lambda: any(one.committed for one in lag.group_offsets(settings, "audit", ["documents"])), 60)
    with letters(settings) as [letter]:
        given = reading.of_message(letter).headers
    assert attempts == [1]
    assert (letter.key(), letter.value()) == (b"k", b"")
    assert pointers.read(given) == Pointer.to(None)
    assert dict(given)["oz_failure"] == b"transient"


def test_a_record_that_is_too_large_to_be_parked_runs_after_the_one_that_it_waits_for(
    settings: Settings, running: Running, database: psycopg.Connection
) -> None:
    audit = ConsumerGroup("audit", tiers=TIERS)
    ran: list[tuple[int, int]] = []

    @audit.tombstone
    def act(key: str | None, ctx: Context) -> None:
        ran.append((ctx.record.offset, ctx.attempt))
        if ran == [(0, 1)]:
            raise ConnectionResetError

    audit.handler(DocumentUploaded)(lambda event, ctx: None)
    with running(audit):
        limit(settings, "audit.retry-1s", 12_000)
    with LogProducer(settings) as producer:
        topic = Names(settings.kafka.namespace).topic("documents")
        for header in (b"small", os.urandom(30_000), b"small"):
            producer.produce(topic, key=b"k", value=None, headers=[("mine", header)]).result(10)
    with running(audit):
        wait_until(lambda: len(ran) == 4, what="all three have run")
    assert ran == [(0, 1), (0, 2), (1, 1), (2, 1)]


@pytest.mark.parametrize("header", [os.urandom(30_000), b"much of the same " * 200_000], ids=["pointer", "compressed"])
def test_what_was_too_large_is_redriven_as_it_was(
    settings: Settings,
    running: Running,
    database: psycopg.Connection,
    monkeypatch: pytest.MonkeyPatch,
    header: bytes,
) -> None:
    audit = ConsumerGroup("audit", tiers=TIERS)
    keys: list[str | None] = []

    @audit.tombstone
    def act(key: str | None, ctx: Context) -> None:
        keys.append(key)
        if len(keys) == 1:
            raise DeadLetter("looks-odd")

    audit.handler(DocumentUploaded)(lambda event, ctx: None)
    with running(audit):
        limit(settings, "audit.dlq", 12_000)
    with LogProducer(settings, more=ANY_SIZE) as producer:
        topic = Names(settings.kafka.namespace).topic("documents")
        producer.produce(topic, key=b"k", value=None, headers=[("mine", header)]).result(10)
    with running(audit):
        await_dead_letters(settings, "audit", 1)
        CommandsHere(settings, monkeypatch)("dlq", "redrive", "audit", "--all", "--why", "mended")
        wait_until(lambda: len(keys) == 2, what="it is handled once more")
        wait_until(lambda: outcomes(database) == [Outcome.DEAD_LETTERED, Outcome.APPLIED], what="its outcomes")
    assert keys == ["k", "k"]
