"""Topics full of `document.uploaded`, written with raw produce(): what Publisher would write, only faster."""

import random
import time
from datetime import UTC, datetime, timedelta
from typing import Any, TypeAlias
from uuid import UUID

from confluent_kafka import KafkaError, Producer
from confluent_kafka.admin import AdminClient, NewTopic
from contestants.terms import KEYS

from offsetzero.producers.records import build
from offsetzero.schemas.codec import Codec
from offsetzero.schemas.documents import DocumentUploaded
from offsetzero.schemas.ids import uuid7

Record: TypeAlias = tuple[str | None, bytes, list[tuple[str, Any]]]
"""Key, value, headers."""
SEED = 5
VARIANTS = 20
"""Different events of each key: no compression sees one of them twice."""
_FIRST = datetime(2026, 1, 1, tzinfo=UTC)
NUMBER_MARK = 123_456_789_012_345
"""Stands for the number in an event until it is replaced."""


class Events:
    """Encoded events: number n belongs to key n modulo 1,000 and carries n in `size_bytes`."""

    def __init__(self) -> None:
        dice = random.Random(SEED)  # noqa: S311 - the same events in each run
        codec = Codec()
        documents = [UUID(int=dice.getrandbits(128), version=4) for _ in range(KEYS)]
        self._made: list[tuple[str | None, bytes, bytes, list[tuple[str, Any]]]] = []
        for n in range(KEYS * VARIANTS):
            record = build(codec, _event(dice, documents[n % KEYS], n), {"source": "/bench"})
            assert record.value is not None
            before, after = record.value.split(MARK)
            headers = [(name, value) for name, value in record.headers if name != "ce_id"]
            self._made.append((record.key, before, after, headers))

    def record(self, number: int, carried: int | None = None) -> Record:
        """The record of an event; its event id is new at each call. It carries its number unless told otherwise."""
        key, before, after, headers = self._made[number % len(self._made)]
        return (
            key,
            before + varint(number if carried is None else carried) + after,
            [("ce_id", str(uuid7()).encode()), *headers],
        )


def _event(dice: random.Random, document_id: UUID, number: int) -> DocumentUploaded:
    return DocumentUploaded(
        document_id=document_id,
        tenant_id=f"tenant-{dice.randrange(50):03}",
        run_id=UUID(int=dice.getrandbits(128), version=4),
        name=f"quarterly report {dice.randrange(10**6):06}.pdf",
        content_type="application/pdf",
        uri=f"s3://documents-eu-central-1/{document_id}/{dice.getrandbits(96):024x}",
        size_bytes=NUMBER_MARK,
        sha256=f"{dice.getrandbits(256):064x}",
        uploaded_at=_FIRST + timedelta(milliseconds=number),
    )


def varint(number: int) -> bytes:
    """An Avro long: zigzag, seven bits a byte."""
    left, out = number << 1, bytearray()
    while left > 0x7F:
        out.append(left & 0x7F | 0x80)
        left >>= 7
    out.append(left)
    return bytes(out)


MARK = varint(NUMBER_MARK)
"""The same in the event's bytes."""


def producer(bootstrap: str, linger_ms: int = 20, *, only_errors: bool = False) -> Producer:
    """The producer that fills topics: lz4, and Java's partitioner as all of ours.

    Args:
        linger_ms: how long it waits for more.
        only_errors: whether it calls back for what the broker has refused alone.
    """
    return Producer(
        {
            "bootstrap.servers": bootstrap,
            "log_level": 4,
            "partitioner": "murmur2_random",
            "compression.type": "lz4",
            "linger.ms": linger_ms,
            "enable.idempotence": True,  # as many as are meant, in their order, whatever has to be sent again
            "delivery.report.only.error": only_errors,
            "queue.buffering.max.messages": 500_000,
            "queue.buffering.max.kbytes": 512 * 1024,
        }
    )


def create(bootstrap: str, name: str, partitions: int) -> None:
    """Make an empty topic."""
    admin = AdminClient({"bootstrap.servers": bootstrap, "log_level": 4})
    config = {"retention.ms": "-1", "retention.bytes": "-1"}
    admin.create_topics([NewTopic(name, partitions, 1, config=config)])[name].result(30)


def remove(bootstrap: str, prefix: str) -> None:
    """Remove all topics whose names begin so."""
    admin = AdminClient({"bootstrap.servers": bootstrap, "log_level": 4})
    found = [name for name in admin.list_topics(timeout=30).topics if name.startswith(prefix)]
    for future in admin.delete_topics(found).values() if found else ():
        future.result(30)


def fill(bootstrap: str, name: str, partitions: int, count: int) -> float:
    """Make a topic with so many events; seconds that it took.

    Raises:
        RuntimeError: the broker did not take them all.
    """
    create(bootstrap, name, partitions)
    events, client = Events(), producer(bootstrap)
    refused: list[KafkaError] = []
    started = time.perf_counter()
    for number in range(count):
        produce(client, name, events.record(number), refused)
    flush(client, refused)
    return time.perf_counter() - started


def produce(client: Producer, topic: str, record: Record, refused: list[KafkaError]) -> None:
    """Append a record, waiting while the client's queue is full; what is refused is noted."""
    key, value, headers = record

    def answered(error: KafkaError | None, _message: object) -> None:
        if error is not None:
            refused.append(error)

    while True:
        try:
            client.produce(topic, value=value, key=key, headers=headers, on_delivery=answered)
        except BufferError:
            client.poll(0.1)
        else:
            client.poll(0)
            return


def flush(client: Producer, refused: list[KafkaError]) -> None:
    """Wait for all answers.

    Raises:
        RuntimeError: the broker did not take all records.
    """
    left = client.flush(120)
    if left or refused:
        raise RuntimeError(f"{left} records without an answer, {len(refused)} refused ({refused[:1]})")
