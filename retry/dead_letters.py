"""Reads a group's dead-letter topic."""

from collections.abc import Iterator
from dataclasses import dataclass

from confluent_kafka import OFFSET_BEGINNING, Consumer, KafkaError, Message, TopicPartition

from offsetzero.client_log import LOGGER
from offsetzero.clock import SYSTEM
from offsetzero.errors import DecodeError, InvalidEvent, TopicError
from offsetzero.retry import headers as retry_headers
from offsetzero.retry.headers import Hop, Origin
from offsetzero.schemas import cloudevents
from offsetzero.schemas.metadata import Metadata
from offsetzero.settings import Settings
from offsetzero.topics import admin
from offsetzero.topics.names import Names

STALL_SECONDS = 15.0


@dataclass(frozen=True, slots=True)
class DeadLetter:
    """One record of a dead-letter topic.

    `meta` is None when its CloudEvents attributes cannot be read. `value` and `headers` are those of the event
    as it was published; what the failure added is in the other fields. `failed_at_ms` is wall time.
    """

    group: str
    partition: int
    offset: int
    failed_at_ms: int
    key: bytes | None
    value: bytes | None
    headers: list[tuple[str, bytes | None]]
    hop: Hop
    meta: Metadata | None
    failure: str
    reason: str
    detail: str
    fingerprint: str
    stack: str


def read(settings: Settings, group: str) -> Iterator[DeadLetter]:
    """All dead letters of a group that are retained, partition by partition, from oldest to newest.

    Args:
        settings: names the cluster.
        group: the group's name.

    Raises:
        TopicError: the group has no dead-letter topic, or the broker does not answer.
    """
    topic = Names(settings.kafka.namespace).topic(f"{group}.dlq")
    consumer = Consumer(
        {
            **settings.kafka.client_config(),
            "group.id": f"{topic}.reader",  # never joined, nothing is committed
            "enable.auto.commit": False,
            "enable.partition.eof": True,
            "isolation.level": "read_committed",
        },
        logger=LOGGER,
    )
    try:
        found = admin.metadata(consumer, settings, topic).topics[topic]
        if found.error is not None:
            raise TopicError(
                f"there is no group {group}: it has no topic {topic} ({found.error.str()}); "
                "`offsetzero dlq list` shows the groups that have dead letters"
            )
        open_partitions = set(found.partitions)
        consumer.assign([TopicPartition(topic, number, OFFSET_BEGINNING) for number in open_partitions])
        deadline = SYSTEM.monotonic() + STALL_SECONDS
        while open_partitions:
            message = consumer.poll(0.5)
            if message is None:
                if SYSTEM.monotonic() > deadline:
                    raise TopicError(f"{topic}: the broker sent nothing for {STALL_SECONDS:.0f} s")
                continue
            deadline = SYSTEM.monotonic() + STALL_SECONDS
            error = message.error()
            if error is None:
                yield _parse(group, message)
            elif error.code() == KafkaError._PARTITION_EOF:
                open_partitions.discard(message.partition())
            else:
                raise TopicError(f"{topic}/{message.partition()}: {error.str()}")
    finally:
        consumer.close()


def groups(settings: Settings) -> list[str]:
    """The groups of our namespace that have a dead-letter topic, by name.

    Raises:
        TopicError: the broker does not answer.
    """
    names = Names(settings.kafka.namespace)
    found = admin.metadata(admin.client(settings), settings).topics
    ours = (names.strip(topic) for topic in found)
    return sorted(name.removesuffix(".dlq") for name in ours if name is not None and name.endswith(".dlq"))


def _parse(group: str, message: Message) -> DeadLetter:
    headers = retry_headers.of_message(message)
    ours = {name: (value or b"").decode(errors="replace") for name, value in headers}
    partition, offset = message.partition() or 0, message.offset() or 0
    kept = [(name, value) for name, value in headers if not name.startswith(retry_headers.PREFIX)]
    try:
        meta = cloudevents.read(message.value(), kept).meta
    except InvalidEvent:
        meta = None
    _, failed_at_ms = message.timestamp()
    here = Origin("", message.topic() or "", partition, offset)
    try:
        hop = retry_headers.read(headers, here, failed_at_ms)
    except DecodeError:  # somebody else wrote it: it is shown all the same
        hop = Hop(here, timestamp_ms=failed_at_ms)
    return DeadLetter(
        group=group,
        partition=partition,
        offset=offset,
        failed_at_ms=failed_at_ms,
        key=message.key(),
        value=message.value(),
        headers=kept,
        hop=hop,
        meta=meta,
        failure=ours.get("oz_failure", ""),
        reason=ours.get("oz_reason", ""),
        detail=ours.get("oz_detail", ""),
        fingerprint=ours.get("oz_fingerprint", ""),
        stack=ours.get("oz_stack", ""),
    )
