"""Outbox rows as records: those that `outbox.record` wrote are ready, those of plain SQL are encoded here."""

from collections.abc import Mapping
from datetime import datetime
from typing import Any, NamedTuple
from uuid import UUID

from offsetzero.errors import InvalidEvent, SchemaError
from offsetzero.producers.outbox import SCHEMA_HEADER
from offsetzero.producers.records import Attributes, OutgoingRecord, build, build_tombstone
from offsetzero.schemas.attributes import parse_time
from offsetzero.schemas.cloudevents import Headers
from offsetzero.schemas.codec import Codec, fingerprint_of
from offsetzero.schemas.event import event_class
from offsetzero.schemas.shapes import CONTENT_TYPE, PREFIX, TRACE
from offsetzero.schemas.structured import is_json

_ATTRIBUTES = {
    "ce_source": "source",
    "ce_tenantid": "tenant_id",
    "ce_runid": "run_id",
    "ce_correlationid": "correlation_id",
    "ce_causationid": "causation_id",
    **{name: name for name in TRACE},
}
_READY = PREFIX + "specversion"
_FROM_THE_ROW = frozenset({"ce_id", "ce_type", "ce_subject", "ce_dataschema"})


class Row(NamedTuple):
    """One outbox row, as it is claimed. `topic` is our name; None where the event type says it."""

    id: UUID
    key: str | None
    type: str
    topic: str | None
    payload: bytes | None
    headers: Any
    created_at: datetime
    shard: int

    @property
    def lane(self) -> str:
        """Rows of one lane are published in order; a row without key has a lane of its own."""
        return self.key if self.key is not None else str(self.id)


class Ready(NamedTuple):
    """A record to be appended. `schema` is a writer schema (fingerprint, JSON) that has to be in the log before it."""

    topic: str
    key: str | None
    value: bytes | None
    headers: Headers
    schema: tuple[str, str] | None


def ready(row: Row, codec: Codec, source: str) -> Ready:
    """The record of a row.

    Args:
        row: with CloudEvents headers it is a record already; without them it is of plain SQL: JSON, or no payload for
            a tombstone.
        codec: encodes events.
        source: `ce_source` of rows that name none.

    Raises:
        InvalidEvent: it can be none: what the row lacks, in the words of the one who wrote it.
        DecodeError: its JSON is not an event of its type.
        TopicError: no topic is declared for its type.
    """
    if not isinstance(row.headers, Mapping):
        raise InvalidEvent("headers: a JSON object is needed")
    texts = {name: value for name, value in row.headers.items() if value is not None}
    if wrong := [name for name, value in texts.items() if not isinstance(value, str)]:
        raise InvalidEvent(f"headers: {', '.join(wrong)}: text is needed")
    if _READY in texts:
        return _as_it_is(row, texts)
    try:
        made = _made(row, codec, source, texts)
    except InvalidEvent as error:
        raise InvalidEvent(f"{row.type}: {error}") from None
    schema = (made.schema.fingerprint, made.schema.text) if made.schema is not None else None
    return Ready(row.topic or made.topic, made.key, made.value, [*made.headers, *_others(texts)], schema)


def _as_it_is(row: Row, texts: dict[str, str]) -> Ready:
    schema = texts.pop(SCHEMA_HEADER, None)
    if row.topic is None:
        raise InvalidEvent("topic: needed where headers have the attributes of the event")
    headers: Headers = [(name, value.encode()) for name, value in texts.items()]
    needs = (fingerprint_of(row.payload), schema) if schema is not None and row.payload is not None else None
    return Ready(row.topic, row.key, row.payload, headers, needs)


def _made(row: Row, codec: Codec, source: str, texts: dict[str, str]) -> OutgoingRecord:
    if row.key is None:
        raise InvalidEvent("aggregateid: needed, it is the record key")
    attributes = _attributes(row, source, texts)
    if row.payload is None:
        return build_tombstone(row.type, row.key, attributes)
    media = texts.get(CONTENT_TYPE)
    if media is not None and not is_json(media):
        raise InvalidEvent(f"payload: {media} without the attributes of an event in headers; JSON is encoded to Avro")
    if event_class(row.type) is None:
        raise InvalidEvent("type: the relay has no model of it; start it with `offsetzero relay --module MODULE`")
    try:
        event = codec.decode(row.type, row.payload, "application/json")
    except SchemaError as error:
        said = str(error).removeprefix(f"{row.type}: ").removeprefix(": ")
        raise InvalidEvent(f"payload: {said}") from None
    if event.key != row.key:
        raise InvalidEvent(f"aggregateid: {row.key!r} is not the event's {event.key_field}, {event.key!r}")
    return build(codec, event, attributes)


def _attributes(row: Row, source: str, texts: dict[str, str]) -> Attributes:
    said: dict[str, Any] = {_ATTRIBUTES[name]: value for name, value in texts.items() if name in _ATTRIBUTES}
    if (sequence := texts.get("ce_sequence")) is not None:
        if not sequence.isascii() or not sequence.isdigit():
            raise InvalidEvent(f"headers: ce_sequence: a whole number is needed, not {sequence!r}")
        said["sequence"] = int(sequence)
    if (at := texts.get("ce_time")) is not None:
        said["time"] = parse_time(at)
    if wrong := _FROM_THE_ROW & texts.keys():
        raise InvalidEvent(f"headers: {', '.join(sorted(wrong))}: the row's columns say that; leave it out")
    known = _ATTRIBUTES.keys() | {"ce_sequence", "ce_time"}
    extensions = {
        name.removeprefix(PREFIX): value
        for name, value in texts.items()
        if name.startswith(PREFIX) and name not in known
    }
    made: Attributes = {"source": source, "event_id": row.id, "time": row.created_at, "extensions": extensions}
    return {**made, **said}  # type: ignore[typeddict-item]


def _others(texts: dict[str, str]) -> Headers:
    """Headers that are no attributes, and travel as they are."""
    known = {CONTENT_TYPE, SCHEMA_HEADER, *_ATTRIBUTES}
    return [
        (name, value.encode()) for name, value in texts.items() if name not in known and not name.startswith(PREFIX)
    ]
