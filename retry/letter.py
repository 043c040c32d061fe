"""A dead letter, as a record of a dead-letter topic tells it."""

from dataclasses import dataclass

from confluent_kafka import Message

from offsetzero.errors import DecodeError, InvalidEvent
from offsetzero.retry import headers as retry_headers
from offsetzero.retry import pointers
from offsetzero.retry.headers import Hop, Origin
from offsetzero.retry.pointers import Pointer
from offsetzero.schemas import cloudevents
from offsetzero.schemas.metadata import Metadata
from offsetzero.topics import reading
from offsetzero.topics.reading import LogRecord


@dataclass(frozen=True, slots=True)
class DeadLetter:
    """One record of a dead-letter topic.

    `meta` is None when its CloudEvents attributes cannot be read. `value` and `headers` are those of the event as it
    was published; what the failure added is in the other fields. `failed_at_ms` is wall time. `pointer` is there when
    the record was too large for the topic: then its value is elsewhere.
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
    pointer: Pointer | None = None

    def is_whole(self, *, edited: bool) -> bool:
        """Whether there is an event to send: nothing of a pointer to what is gone, unless an operator has said what it
        was; and then its key must be known, too, for it says where the event belongs."""
        return self.pointer is None or (edited and self.pointer.key_size is None)


def of_message(group: str, message: Message) -> DeadLetter:
    """As `of_record`, for who has a client's message."""
    return of_record(group, message.topic() or "", reading.of_message(message))


def of_record(group: str, topic: str, record: LogRecord) -> DeadLetter:
    """A record of a group's dead-letter topic, whoever wrote it.

    Args:
        group: whose it is.
        topic: as it is called on the cluster.
        record: as it is there.
    """
    headers = record.headers
    ours = {name: (value or b"").decode(errors="replace") for name, value in headers}
    kept = [(name, value) for name, value in headers if not name.startswith(retry_headers.PREFIX)]
    try:
        meta = cloudevents.read(record.value, kept).meta
    except InvalidEvent:
        meta = None
    failed_at_ms = record.timestamp_ms
    here = Origin("", topic, record.partition, record.offset)
    try:
        hop = retry_headers.read(headers, here, failed_at_ms)
    except DecodeError:  # somebody else wrote it: it is shown all the same
        hop = Hop(here, timestamp_ms=failed_at_ms)
    return DeadLetter(
        group=group,
        partition=record.partition,
        offset=record.offset,
        failed_at_ms=failed_at_ms,
        key=record.key,
        value=record.value,
        headers=kept,
        hop=hop,
        meta=meta,
        failure=ours.get("oz_failure", ""),
        reason=ours.get("oz_reason", ""),
        detail=ours.get("oz_detail", ""),
        fingerprint=ours.get("oz_fingerprint", ""),
        stack=ours.get("oz_stack", ""),
        pointer=pointers.read(headers),
    )
