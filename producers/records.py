"""What becomes a record: an event with its metadata, as topic, key, value and headers."""

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from functools import cache
from typing import Any, TypedDict
from uuid import UUID

from offsetzero.clock import SYSTEM
from offsetzero.errors import InvalidEvent
from offsetzero.schemas import frozen
from offsetzero.schemas.cloudevents import AVRO, Headers, to_headers
from offsetzero.schemas.codec import Codec
from offsetzero.schemas.event import Event
from offsetzero.schemas.ids import uuid7
from offsetzero.schemas.metadata import Metadata
from offsetzero.schemas.writer import AvroSchema
from offsetzero.settings import Settings
from offsetzero.topics.catalogue import topic_of

DEFAULT_SOURCE: str = Settings.model_fields["source"].default


class Attributes(TypedDict, total=False):
    """What a publisher may say about an event besides its data. All of it is optional.

    `tenant_id` and `run_id` come from the event's fields of that name otherwise; `event_id` is a new UUIDv7,
    `time` is now. `bulk` sends to the topic's lane for backfill. `source` names the publishing service: an
    event id is unique within it.
    """

    tenant_id: str | None
    run_id: UUID | str | None
    correlation_id: UUID | str | None
    causation_id: UUID | str | None
    sequence: int | None
    event_id: UUID | str | None
    time: datetime | None
    bulk: bool
    source: str | None
    traceparent: str | None
    tracestate: str | None
    extensions: Mapping[str, str]


@dataclass(frozen=True, slots=True)
class OutgoingRecord:
    """A record that is ready to be appended. `topic` is our name, without namespace."""

    topic: str
    key: str | None
    value: bytes | None
    headers: Headers
    meta: Metadata
    schema: AvroSchema | None
    """The writer schema when it is in no frozen contract, so that it has to travel in the topic `schemas`."""


def build(codec: Codec, event: Event, attributes: Attributes) -> OutgoingRecord:
    """The record of an event.

    Raises:
        InvalidEvent: a value or an attribute that no event may have.
        TopicError: no topic is declared for the type.
    """
    if not event.event_type:
        raise InvalidEvent(f"{type(event).__name__} has no event type; declare it with type=… and key=…")
    topic = topic_of(event.event_type, bulk=attributes.get("bulk", False))
    value = codec.encode(event)
    schema = codec.schema(type(event))
    meta = _metadata(event.event_type, event.key, event, schema, attributes)
    return OutgoingRecord(
        topic=topic,
        key=event.key,
        value=value,
        headers=to_headers(meta, AVRO),
        meta=meta,
        schema=None if is_frozen(schema) else schema,
    )


def build_tombstone(event_type: str, key: str, attributes: Attributes) -> OutgoingRecord:
    """The record of an event without data: its handlers receive it as a tombstone of the key.

    Raises:
        InvalidEvent: an attribute that no event may have.
        TopicError: no topic is declared for the type.
    """
    topic = topic_of(event_type, bulk=attributes.get("bulk", False))
    meta = _metadata(event_type, key, None, None, attributes)
    return OutgoingRecord(topic, key, None, to_headers(meta, None), meta, None)


def is_frozen(schema: AvroSchema) -> bool:
    """Whether a schema is one of the contracts that come with offsetzero."""
    return schema.fingerprint in _frozen_fingerprints()


@cache
def _frozen_fingerprints() -> frozenset[str]:
    contracts = frozen.of_package().values()
    return frozenset(one.schema.fingerprint for versions in contracts for one in versions)


def _metadata(
    event_type: str, key: str, event: Event | None, schema: AvroSchema | None, attributes: Attributes
) -> Metadata:
    return Metadata(
        id=_text(attributes.get("event_id")) or str(uuid7()),
        source=attributes.get("source") or DEFAULT_SOURCE,
        type=event_type,
        time=attributes.get("time") or SYSTEM.now(),
        subject=key or None,
        dataschema=f"urn:offsetzero:schema:{schema.fingerprint}" if schema is not None else None,
        tenant_id=_text(attributes.get("tenant_id") or getattr(event, "tenant_id", None)),
        run_id=_text(attributes.get("run_id") or getattr(event, "run_id", None)),
        correlation_id=_text(attributes.get("correlation_id")),
        causation_id=_text(attributes.get("causation_id")),
        sequence=attributes.get("sequence"),
        traceparent=attributes.get("traceparent"),
        tracestate=attributes.get("tracestate"),
        extensions=attributes.get("extensions") or {},
    )


def _text(value: Any) -> str | None:
    return None if value is None else str(value)
