"""Offsets without a record: markers of transactions, aborted records, what compaction took. Lag ends at exactly 0."""

import secrets
from collections.abc import Callable
from contextlib import AbstractContextManager
from uuid import uuid4

import psycopg
import pytest
from confluent_kafka import Consumer, KafkaError, Producer, TopicPartition
from kafka.conftest import RunningGroup, await_effects, effects, uploaded

from offsetzero.consumers.context import Context
from offsetzero.consumers.group import ConsumerGroup
from offsetzero.schemas import cloudevents
from offsetzero.schemas.codec import Codec
from offsetzero.schemas.documents import DocumentUploaded
from offsetzero.schemas.metadata import Metadata
from offsetzero.settings import Settings
from offsetzero.topics import cluster, lag
from offsetzero.topics.names import Names
from offsetzero.topics.plan import AlterConfig, ConfigChange, Plan
from support import wait_until

Running = Callable[..., AbstractContextManager[RunningGroup]]
CODEC, DOCUMENT = Codec(), uuid4()


def audit_group() -> ConsumerGroup:
    audit = ConsumerGroup("audit", topics=["documents"])

    @audit.handler(DocumentUploaded)
    def note(event: DocumentUploaded, ctx: Context) -> None:
        ctx.connection.execute(
            "INSERT INTO effects (document_id, note, attempt) VALUES (%s, %s, %s)",
            (event.document_id, event.name, ctx.attempt),
        )

    return audit


def produce(producer: Producer, settings: Settings, names: range) -> None:
    for name in names:
        event = uploaded(DOCUMENT, name=str(name))
        meta = Metadata(id=f"{name}-{secrets.token_hex(4)}", source="/test", type="document.uploaded")
        producer.produce(
            Names(settings.kafka.namespace).topic("documents"),
            key=event.key.encode(),
            value=CODEC.encode(event),
            headers=cloudevents.to_headers(meta, cloudevents.AVRO),
            partition=0,
        )
    producer.flush(10)


def await_no_lag(settings: Settings) -> None:
    def caught_up() -> bool:
        found = lag.group_offsets(settings, "audit", ["documents", "audit.retry-1m", "audit.retry-10m"])
        return len(found) == 18 and all(one.committed == one.high for one in found)

    wait_until(caught_up, what="every committed offset at its high watermark")


@pytest.mark.parametrize("last", ["committed", "aborted"])
def test_a_topic_written_by_transactions_with_aborts_is_read_to_its_end(
    last: str, settings: Settings, topics: None, running: Running, database: psycopg.Connection
) -> None:
    """librdkafka#2539, spring-kafka#1587: markers at the end were lag for ever."""
    producer = Producer({**settings.kafka.client_config(), "transactional.id": f"{settings.kafka.namespace}t"})
    producer.init_transactions(10)

    def transact(names: range, how: str) -> None:
        producer.begin_transaction()
        produce(producer, settings, names)
        (producer.commit_transaction if how == "committed" else producer.abort_transaction)(10)

    transact(range(5), "committed")
    transact(range(5, 10), "aborted")
    with running(audit_group()):
        await_effects(database, 5)
        await_no_lag(settings)
        transact(range(10, 15), "committed")
        for number in range(15, 40, 5):
            transact(range(number, number + 5), "aborted")
        transact(range(40, 45), last)
        await_no_lag(settings)
    with running(audit_group()):  # from a position behind the last marker
        await_no_lag(settings)
    rest = range(40, 45) if last == "committed" else range(0)
    assert [int(note) for _, note, _ in effects(database)] == [*range(5), *range(10, 15), *rest]


def test_a_compacted_topic_is_read_to_its_end(
    settings: Settings, running: Running, database: psycopg.Connection
) -> None:
    """faust-streaming/faust#606: gaps looked like work in flight."""
    config = {
        "cleanup.policy": "compact",
        "segment.ms": "100",
        "min.cleanable.dirty.ratio": "0.01",
        "delete.retention.ms": "0",
        "file.delete.delay.ms": "100",
    }
    changes = tuple(ConfigChange(name, None, value) for name, value in config.items())
    cluster.apply(settings, Plan((AlterConfig("documents", changes),), ()))
    producer = Producer(settings.kafka.client_config())

    def kept() -> list[int]:
        produce(producer, settings, range(60, 61))  # begins another segment: the last one is never compacted
        return read(settings)

    produce(producer, settings, range(30))
    wait_until(lambda: kept()[0] > 0, 60, what="compaction", interval=0.3)
    produce(producer, settings, range(30, 35))
    expected = read(settings)
    assert expected[-1] - expected[0] + 1 > len(expected) or expected[0] > 0, "there are gaps"
    with running(audit_group()):
        await_effects(database, 5)
        await_no_lag(settings)
    noted = [int(note) for _, note, _ in effects(database)]
    assert noted[-5:] == list(range(30, 35))
    assert 0 not in noted


def read(settings: Settings) -> list[int]:
    """The offsets of the records that partition 0 has."""
    consumer = Consumer(
        {
            **settings.kafka.client_config(),
            "group.id": f"{settings.kafka.namespace}look",
            "enable.auto.commit": False,
            "enable.partition.eof": True,
        }
    )
    consumer.assign([TopicPartition(Names(settings.kafka.namespace).topic("documents"), 0, 0)])
    found = []
    while True:
        message = consumer.poll(10)
        assert message is not None
        if (error := message.error()) is not None:
            assert error.code() == KafkaError._PARTITION_EOF
            consumer.close()
            return found
        found.append(message.offset() or 0)
