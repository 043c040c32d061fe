"""Dead letters as a group writes them, without waiting for one to fail."""

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Any
from uuid import UUID, uuid4

import psycopg
from confluent_kafka.admin import OffsetSpec
from kafka.conftest import uploaded
from kafka.enriching import read_all

from offsetzero.clock import SYSTEM
from offsetzero.producers.log import LogProducer
from offsetzero.producers.records import build
from offsetzero.retry import headers as retry_headers
from offsetzero.retry import pointers
from offsetzero.retry.failures import Failure, Poison
from offsetzero.retry.headers import Hop, Origin
from offsetzero.schemas.codec import Codec
from offsetzero.settings import Settings
from offsetzero.store import dead_letter_actions
from offsetzero.store.dead_letter_actions import Kind
from offsetzero.store.dead_letters import Filter
from offsetzero.store.script import run
from offsetzero.topics import catalogue, cluster, offsets
from offsetzero.topics.admin import client
from offsetzero.topics.names import Names

SOURCE_ID = "AAAAAAAAAAAAAAAAAAAAAA"


@dataclass(frozen=True, slots=True)
class Letter:
    """One dead letter to write; `offset` is that of its origin, which has it no more: a `pointer` leads nowhere."""

    offset: int
    partition: int = 0
    document_id: UUID = field(default_factory=uuid4)
    run_id: UUID | None = None
    name: str = "a.pdf"
    tenant: str = "acme"
    failure: Failure = field(default_factory=lambda: Poison("corrupt", "it cannot be read"))
    attempt: int = 3
    redrive_no: int = 0
    event_id: UUID = field(default_factory=uuid4)
    failed_at_ms: int = 0
    due_ms: int = 0
    pointer: bool = False
    key: bytes | None = None
    """Instead of that of its document."""


def make_topics(settings: Settings, group: str, partitions: int = 2) -> None:
    """A group's own topics, without retention: dead letters of tests may be of any time."""
    made = catalogue.group_topics(group, partitions, [])
    cluster.ensure(settings, [replace(one, config={**one.config, "retention.ms": "-1"}) for one in made])


def write(settings: Settings, group: str, letters: Sequence[Letter], partitions: int = 2, to: str = "dlq") -> None:
    """Write dead letters of a group, or copies `to` another of its topics, which are made if they are missing."""
    make_topics(settings, group, partitions)
    topic, codec = Names(settings.kafka.namespace).topic(f"{group}.{to}"), Codec()
    with LogProducer(settings) as producer:
        for one in letters:
            event = uploaded(one.document_id, one.run_id, one.name).model_copy(update={"tenant_id": one.tenant})
            record = build(codec, event, {"event_id": one.event_id, "source": "/test"})
            origin = Origin(SOURCE_ID, "documents", one.partition, one.offset)
            hop = Hop(origin, one.attempt, 3, one.due_ms, one.redrive_no, 1_700_000_000_000)
            headers = retry_headers.write(record.headers, hop, one.failure, group)
            key = one.key if one.key is not None else (record.key or "").encode()
            producer.produce(
                topic,
                key=pointers.key_of(key) if one.pointer else key,
                value=pointers.VALUE if one.pointer else record.value,
                headers=pointers.write(headers, record.value, key) if one.pointer else headers,
                partition=one.partition,
                timestamp_ms=one.failed_at_ms or SYSTEM.now_ms(),
            )


def discard(database: psycopg.Connection[Any], group: str, source: str, event_id: UUID) -> None:
    """What `offsetzero dlq discard` writes, of a dead letter that the ledger has."""
    with database.transaction():
        database.execute(
            "INSERT INTO dead_letters (topic_id, partition, place, group_name, failed_at, source, event_id, redrive_no,"
            " failure, reason, detail, fingerprint, attempt, origin_topic_id, origin_topic, origin_partition,"
            " origin_offset) VALUES ('t', 0, 0, %s, now(), %s, %s, 0, 'poison', 'corrupt', '', '', 1, 's', 'documents',"
            " 0, 0)",
            (group, source, str(event_id)),
        )
        discard_all(database, group)


def discard_all(database: psycopg.Connection[Any], group: str) -> None:
    """The same, of all dead letters of a group that the ledger has."""
    action = uuid4()
    run(database, dead_letter_actions.begin(action, Kind.DISCARD, group, "a test", "a test", "one"))
    run(database, dead_letter_actions.decide(action, Filter(groups=[group])))


def redriven(settings: Settings, group: str) -> list[dict[str, Any]]:
    """What is in a group's redrive topic, in the order of its partitions."""
    return sorted(read_all(settings, f"{group}.redrive"), key=lambda one: (one["partition"], one["offset"]))


def count_redriven(settings: Settings, group: str) -> int:
    """How many records are in a group's redrive topic; also while more come."""
    topic = f"{group}.redrive"
    places = [(topic, number) for number in range(cluster.partitions(settings)[topic])]
    latest = OffsetSpec.latest()
    return sum(offsets.ends(client(settings), Names(settings.kafka.namespace), places, latest).values())


def origins(records: Sequence[dict[str, Any]]) -> list[tuple[int, int]]:
    """Partition and offset of the origins of records."""
    found = [one["oz_origin"].rsplit("/", 2) for one in records]
    return [(int(partition), int(offset)) for _, partition, offset in found]
