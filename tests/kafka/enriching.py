"""A Kafka-transactional group that makes an event of each event; run by tests, and by processes that they kill."""

import os
import time
from collections import Counter
from typing import Any
from uuid import UUID

from confluent_kafka import Consumer, KafkaError

from offsetzero.consumers.context import Context
from offsetzero.consumers.group import ConsumerGroup
from offsetzero.retry.failures import Poison, Transient
from offsetzero.schemas.documents import DocumentUploaded
from offsetzero.schemas.event import Event
from offsetzero.settings import Settings
from offsetzero.topics import cluster
from offsetzero.topics.catalogue import Topic, declare
from offsetzero.topics.names import Names

ENRICHED = declare(Topic("enriched", event_types=("document.enriched",), key="document id"))


class DocumentEnriched(Event, type="document.enriched", key="document_id"):
    """What the group makes of an upload."""

    document_id: UUID
    name: str
    attempt: int


def enrich(event: DocumentUploaded, ctx: Context) -> None:
    """Publish, then fail as the document's name says: `transient`, or `poison`."""
    assert ctx.connection is None
    ctx.publish(DocumentEnriched(document_id=event.document_id, name=event.name, attempt=ctx.attempt))
    kind = event.name.partition("-")[0]
    if kind == "transient" and ctx.attempt == 1:
        raise Transient("busy")
    if kind == "poison":
        raise Poison("corrupt")
    time.sleep(float(os.environ.get("OZ_TEST_PAUSE", "0")))


def make(**options: Any) -> ConsumerGroup:
    """The group."""
    group = ConsumerGroup("enricher", transactional=True, **options)
    group.handler(DocumentUploaded)(enrich)
    return group


def prepare_topics(settings: Settings) -> None:
    """Have the topic of the outputs on the broker."""
    cluster.ensure(settings, [ENRICHED])


def read_all(settings: Settings, topic: str, isolation: str = "read_committed") -> list[dict[str, Any]]:
    """Every record of a topic up to its end: its headers by name, and `partition`, `offset` and `value`."""
    config = settings.kafka.client_config()
    consumer = Consumer({**config, "group.id": "reader", "isolation.level": isolation, "enable.partition.eof": True})
    name = Names(settings.kafka.namespace).topic(topic)
    try:
        places = consumer.list_topics(name, 10).topics[name].partitions
        from confluent_kafka import TopicPartition

        consumer.assign([TopicPartition(name, number, 0) for number in places])
        found, open_partitions = [], set(places)
        while open_partitions:
            message = consumer.poll(10)
            assert message is not None, "the end of the topic was not reached"
            error = message.error()
            if error is not None:
                assert error.code() == KafkaError._PARTITION_EOF, error
                open_partitions.discard(message.partition())
                continue
            headers = {key: value.decode(errors="replace") for key, value in message.headers() or [] if value}
            found.append(
                {**headers, "partition": message.partition(), "offset": message.offset(), "value": message.value()}
            )
        return found
    finally:
        consumer.close()


def outputs(settings: Settings) -> "Counter[str]":
    """How often each source event has a committed output."""
    return Counter(record["ce_causationid"] for record in read_all(settings, "enriched"))


if os.environ.get("OZ_TEST_ENRICHER"):
    enricher = make()
