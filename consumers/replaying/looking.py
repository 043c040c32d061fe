"""Look at the records of a replay before it begins: when they were written, which are meant, which are done already."""

from collections import Counter
from collections.abc import Callable, Generator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import psycopg
from confluent_kafka import Consumer, KafkaError, KafkaException, Message, TopicPartition

from offsetzero.client_log import LOGGER, watched
from offsetzero.clock import SYSTEM
from offsetzero.consumers.reading.handed import AHEAD
from offsetzero.consumers.record import OwnedPartition, Record
from offsetzero.consumers.replaying.seam import over_the_seam
from offsetzero.consumers.replaying.spans import Span
from offsetzero.consumers.working.calls import Call
from offsetzero.errors import TopicError
from offsetzero.generation import Generation
from offsetzero.schemas import cloudevents
from offsetzero.schemas.cloudevents import Glance
from offsetzero.settings import Settings
from offsetzero.store import forced, processed
from offsetzero.store.processed import EventIdentity
from offsetzero.store.script import run
from offsetzero.topics.names import Names

MAX_LOOK = 50_000
"""Records that are looked at; of more, the first ones of each partition stand for the others."""
LOOK_SECONDS = 20.0  # without a record, after which what was seen is all


@dataclass(frozen=True, slots=True)
class Wanted:
    """Which records of a span are meant.

    Attributes:
        key: of the record, None for any.
        event_type: as `document.uploaded`, None for any.
    """

    key: bytes | None = None
    event_type: str | None = None

    @property
    def is_all(self) -> bool:
        """Whether all of them are."""
        return self.key is None and self.event_type is None

    def has(self, record: Record) -> bool:
        """Whether a record is one of them. What cannot be read is of no type."""
        if self.key is not None and record.key != self.key:
            return False
        if self.event_type is None:
            return True
        glance = glance_at(record)
        return glance is not None and glance.meta.type == self.event_type


@dataclass(slots=True)
class Seen:
    """What a look has found.

    Attributes:
        total: offsets of the spans.
        read: records that were looked at.
        meant: those of them that are meant.
        done: those of these that have their outcome, so that they are not done again.
        owed: those that a forced replay was to have done again, and has not.
        kinds: how many of those that are meant there are of each tenant and event type.
        first_ms: when the earliest of them was written, Unix time.
        last_ms: the latest.
        is_whole: whether all records were looked at.
    """

    total: int
    read: int = 0
    meant: int = 0
    done: int = 0
    owed: int = 0
    first_ms: int | None = None
    last_ms: int | None = None
    is_whole: bool = True
    identities: list[EventIdentity] = field(default_factory=list)
    kinds: Counter[tuple[str, str]] = field(default_factory=Counter)

    def scaled(self, count: int) -> int:
        """What a count of those that were looked at means for all."""
        return count if self.is_whole or not self.read else round(count * self.total / self.read)


def glance_at(record: Record) -> Glance | None:
    """What a record's attributes say; None when it has none, or they cannot be read."""
    try:
        if record.value is not None or cloudevents.is_cloudevent(record.headers):
            return cloudevents.glance_at(record.value, record.header_names, record.header_values)
    except Exception:  # as `CallReader`: whatever bytes come to that nobody foresaw
        return None
    return None


def look(
    settings: Settings,
    generation: Generation,
    spans: Sequence[Span],
    wanted: Wanted,
    connection: psycopg.Connection | None,
    limit: int = MAX_LOOK,
) -> Seen:
    """Read the records of spans, as far as `limit` goes.

    Args:
        settings: name the cluster.
        generation: whose outcomes are looked up.
        spans: what is read.
        wanted: which of them are meant.
        connection: to the database with the outcomes; None where the group has none.
        limit: records.

    Raises:
        TopicError: the cluster refuses.
    """
    total = sum(span.records for span in spans)
    opened = run(connection, forced.of_group(generation.group)) if connection is not None else None
    seen = Seen(total, is_whole=total <= limit)
    spans = [span for span in spans if span.records]
    shares = {span: span.records if seen.is_whole else max(1, limit * span.records // total) for span in spans}

    def take(record: Record) -> None:
        seen.read += 1
        _note_time(seen, record)
        if wanted.has(record):
            seen.meant += 1
            if connection is not None:
                record.owned.forced = opened
                glance = glance_at(record)
                seen.identities.append(Call(record, generation.group, glance, None, generation.number).identity)
                if glance is not None:
                    seen.kinds[glance.meta.tenant_id or "", glance.meta.type] += 1

    with _reader(settings, spans) as consumer:
        _read(consumer, settings, [(span, span.first, shares[span]) for span in spans], take)
        if not seen.is_whole:
            _read(consumer, settings, [(span, span.end - 1, 1) for span in spans], lambda one: _note_time(seen, one))
    if connection is not None:
        for number in {one.generation for one in seen.identities}:
            of_it = [one[1:4] for one in seen.identities if one.generation == number]
            ended = run(connection, processed.ended(Generation(generation.group, number).name, of_it))
            done = sum(one in ended for one in of_it)
            seen.done += done
            seen.owed += len(of_it) - done if opened is not None and number > 1 else 0
    return seen


def _note_time(seen: Seen, record: Record) -> None:
    at = record.timestamp_ms
    seen.first_ms = at if seen.first_ms is None else min(seen.first_ms, at)
    seen.last_ms = at if seen.last_ms is None else max(seen.last_ms, at)


def reader_config(settings: Settings) -> dict[str, object]:
    """Of a consumer that is told what to read, and is a member of no group."""
    return {
        **settings.kafka.client_config(),
        "group.id": "offsetzero-replay",  # the client wants one; nothing is committed, nobody joins
        "group.protocol": "classic",
        "session.timeout.ms": 45_000,
        "enable.auto.commit": False,
        "enable.auto.offset.store": False,
        "auto.offset.reset": "error",
        "isolation.level": "read_committed",
        "enable.partition.eof": True,
        "fetch.wait.max.ms": 50,
        **AHEAD,
    }


@contextmanager
def _reader(settings: Settings, spans: Sequence[Span]) -> Generator[Any]:
    consumer = over_the_seam(Consumer(watched(reader_config(settings)), logger=LOGGER), settings, spans)
    try:
        yield consumer
    finally:
        consumer.close()


def _read(
    consumer: Any, settings: Settings, parts: Sequence[tuple[Span, int, int]], take: Callable[[Record], None]
) -> None:
    """Read so many records of each span, from an offset on, not beyond its end."""
    names = Names(settings.kafka.namespace)
    left = {(names.topic(span.topic), span.partition): (span, count) for span, _, count in parts}
    stays = {span: OwnedPartition(span.topic, span.topic_id, span.partition) for span, _, _ in parts}
    if not left:
        return
    consumer.assign([TopicPartition(names.topic(span.topic), span.partition, at) for span, at, _ in parts])
    silent_until = SYSTEM.monotonic() + LOOK_SECONDS
    while left and SYSTEM.monotonic() < silent_until:
        for message in consumer.consume(1_000, 0.2):
            place = message.topic() or "", message.partition() or 0
            if place not in left:
                continue
            silent_until = SYSTEM.monotonic() + LOOK_SECONDS
            span, count = left[place]
            if _is_over(message, span):
                del left[place]
                continue
            take(_record(stays[span], message))
            left[place] = span, count - 1
            if count == 1 or (message.offset() or 0) + 1 >= span.end:
                del left[place]
    consumer.unassign()


def _is_over(message: Message, span: Span) -> bool:
    error = message.error()
    if error is None:
        return (message.offset() or 0) >= span.end
    if error.code() in (KafkaError._PARTITION_EOF, KafkaError._AUTO_OFFSET_RESET):
        return True
    raise TopicError(f"{span.topic}/{span.partition}: {error.str()}") from KafkaException(error)


def _record(stay: OwnedPartition, message: Message) -> Record:
    try:
        headers = message.headers() or []
    except UnicodeDecodeError:
        headers = []
    return Record(stay, message.offset() or 0, message.key(), message.value(), headers, message.timestamp()[1])  # type: ignore[arg-type]
