"""Events as bytes: Avro single-object encoding, read strictly and through schema evolution (design section 4)."""

import io
from collections.abc import Callable
from typing import Any, TypeAlias

from fastavro import schemaless_reader, schemaless_writer

from offsetzero.errors import DecodeError, InvalidEvent, SchemaError, UnknownSchema
from offsetzero.schemas import avro, control, documents, frozen, runs, writer
from offsetzero.schemas.cloudevents import AVRO
from offsetzero.schemas.compiled import MARKER, Compiled
from offsetzero.schemas.datum import BadValue
from offsetzero.schemas.event import Event, event_class
from offsetzero.schemas.lazy import restore
from offsetzero.schemas.structured import is_json
from offsetzero.schemas.writer import AvroSchema

FindSchema: TypeAlias = Callable[[str], str | None]

BUILT_IN = (control, documents, runs)
"""Modules whose event types every process can decode."""
_HEADER = len(MARKER) + 8


class Codec:
    """Encodes events, and decodes what any version of their producers wrote. Safe for many threads.

    Args:
        find_schema: asked for a writer schema that is in no contract, by fingerprint (hex, bytes as on the
            wire); answers with its JSON, or None when there is no such schema. What it raises is passed on:
            "I cannot look now" must not make an event poison.
    """

    def __init__(self, find_schema: FindSchema | None = None) -> None:
        self._find_schema = find_schema
        self._models: dict[type[Event], Compiled] = {}
        self._writers: dict[str, AvroSchema] = {
            contract.schema.fingerprint: contract.schema
            for contracts in frozen.of_package().values()
            for contract in contracts
        }

    def encode(self, event: Event) -> bytes:
        """The value of the event's record.

        Raises:
            InvalidEvent: a value that its type does not allow: a naive datetime, an int over 64 bits, …; or values
                within each other so deep that no reader would take them.
            SchemaError: the model has no Avro form.
        """
        kind = event.__class__  # `type` would not look at an event that was only read
        model = self._models.get(kind) or self._model(kind)
        try:
            payload = model.write(event)
        except Exception:  # it writes what is usual, and says nothing about the rest
            payload = _written(model, event)
        if model.holds_itself:
            _check_depth(model, payload)
        return payload

    def read(self, event_type: str, payload: bytes, content_type: str | None = None) -> Event:
        """The event that a payload holds: all its bytes are read now, its model is made at the first look at it.

        Args:
            event_type: says which model.
            payload: Avro single-object encoding, or JSON.
            content_type: of the payload; only a JSON type makes a difference, that of being validated at once.

        Returns:
            An event that equals what `decode` returns. When the model refuses the values, every look at it raises
            `UnreadableEvent`.

        Raises:
            DecodeError: not a well-formed payload of that type; it is poison.
            UnknownSchema: its writer schema is nowhere to be found.
        """
        model = self._models.get(event_class(event_type)) or self._model_of(event_type)  # type: ignore[arg-type]
        if content_type != AVRO and is_json(content_type):
            return model.from_json(payload)
        if payload.startswith(model.header):
            return model.lazy(model.read(payload, _HEADER))
        return model.lazy_resolved((self._resolve(model, payload),))

    def decode(self, event_type: str, payload: bytes, content_type: str | None = None) -> Event:
        """The event that a payload holds, in the shape of this process's model; like `read`, but made at once.

        Raises:
            DecodeError: not a well-formed event of that type; such a payload is poison.
            UnknownSchema: its writer schema is nowhere to be found.
        """
        model = self._model_of(event_type)
        if is_json(content_type):
            return model.from_json(payload)
        if payload.startswith(model.header):
            return restore(model.event, model.state(model.read(payload, _HEADER)))
        return model.from_fields(self._resolve(model, payload))

    def decode_fields(self, payload: bytes) -> dict[str, Any]:
        """The fields as they were written, by the writer's schema alone; no model is needed. For tools.

        Raises:
            DecodeError: not a well-formed payload.
            UnknownSchema: its writer schema is nowhere to be found.
        """
        written = self._writer_of(payload, None)
        return _resolved(payload, written, None)

    def knows(self, event_type: str, payload: bytes) -> bool:
        """Whether the payload's fingerprint belongs to a schema of that event type; the rest is not read.

        True for an event type that this process has no model of, too, if its producer published the schema.

        Raises:
            Whatever `find_schema` raises.
        """
        event = event_class(event_type)
        try:
            if event is None:
                return event_type_of(self._writer_of(payload, None)) == event_type
            model = self._model(event)
            return _same_record(self._writer_of(payload, model.schema), model.schema)
        except DecodeError:
            return False

    def schema(self, event: type[Event]) -> AvroSchema:
        """The schema with which this process writes events of a model."""
        return self._model(event).schema

    def _resolve(self, model: Compiled, payload: bytes) -> dict[str, Any]:
        """The fields of a payload that another schema wrote, in the shape of this process's model."""
        written = self._writer_of(payload, model.schema)
        if not _same_record(written, model.schema):
            raise DecodeError(
                f"{model.event.event_type}: the payload was written as {written.name}, which is another record than "
                f"{model.schema.name}"
            )
        return _resolved(payload, written, model.reader)

    def _model_of(self, event_type: str) -> Compiled:
        event = event_class(event_type)
        if event is None:
            raise DecodeError(f"no model for the event type {event_type!r} here: import its module")
        return self._models.get(event) or self._model(event)

    def _model(self, event: type[Event]) -> Compiled:
        model = self._models.get(event)
        if model is None:
            model = self._models[event] = Compiled(event)
        return model

    def _writer_of(self, payload: bytes, own: AvroSchema | None) -> AvroSchema:
        fingerprint = fingerprint_of(payload)
        if own is not None and own.fingerprint == fingerprint:
            return own
        found = self._writers.get(fingerprint)
        if found is None:
            found = self._writers[fingerprint] = self._look_up(fingerprint)
        return found

    def _look_up(self, fingerprint: str) -> AvroSchema:
        for model in list(self._models.values()):
            if model.schema.fingerprint == fingerprint:
                return model.schema
        text = self._find_schema(fingerprint) if self._find_schema is not None else None
        if text is None:
            raise UnknownSchema(
                f"writer schema {fingerprint} is in no contract and not in the topic `schemas`: the "
                "producer did not publish it, or the payload is not ours"
            )
        try:
            found = writer.load(text)
        except SchemaError as error:
            raise UnknownSchema(f"the topic `schemas` has no usable {fingerprint}: {error}") from None
        if found.fingerprint != fingerprint:
            raise UnknownSchema(
                f"the topic `schemas` answers {fingerprint} with a schema of fingerprint {found.fingerprint}"
            )
        return found


def fingerprint_of(payload: bytes) -> str:
    """The writer schema's fingerprint, in hex, of a single-object payload.

    Raises:
        DecodeError: the payload has another form.
    """
    if payload[:2] == MARKER and len(payload) >= _HEADER:
        return payload[2:_HEADER].hex()
    if not payload:
        raise DecodeError("an empty value is no Avro; a tombstone is a null value")
    if payload[0] == 0 and len(payload) >= 5:
        raise DecodeError("Confluent framing (a byte 0, a schema id), but no registry is configured")
    raise DecodeError(f"not Avro single-object encoding: it begins with {payload[:4].hex(' ')}, not c3 01")


def event_type_of(schema: AvroSchema) -> str | None:
    """The event type that a writer schema names; None when it was not made from an event model."""
    found = schema.parsed.get(avro.EVENT_TYPE)
    return found if isinstance(found, str) else None


def _written(model: Compiled, event: Event) -> bytes:
    """The payload that fastavro writes: the reference for `Compiled.write`, and for what that leaves."""
    out = io.BytesIO()
    out.write(model.header)
    try:
        schemaless_writer(out, model.schema.parsed, model.prepare(event))
    except BadValue as error:
        path = ".".join(reversed(error.path))
        raise InvalidEvent(f"{event.event_type}: {path}: {error}") from None
    except UnicodeEncodeError as error:
        raise InvalidEvent(f"{event.event_type}: text that is not Unicode: {error}") from None
    except RecursionError:
        raise InvalidEvent(f"{event.event_type}: a value that contains itself") from None
    return out.getvalue()


def _check_depth(model: Compiled, payload: bytes) -> None:
    try:
        model.read(payload, _HEADER)
    except DecodeError as error:
        raise InvalidEvent(f"{model.event.event_type}: no reader would take it: {error}") from None


def _same_record(written: AvroSchema, model: AvroSchema) -> bool:
    return written.name in (model.name, *model.parsed.get("aliases", ()))


def _resolved(payload: bytes, written: AvroSchema, reader: Any) -> dict[str, Any]:
    """The fields as the reader's schema has them; fastavro sees only bytes that are one datum of the writer's."""
    written.read(payload, _HEADER)
    source = io.BytesIO(payload)
    source.seek(_HEADER)
    try:
        fields: dict[str, Any] = schemaless_reader(source, written.parsed, reader)  # type: ignore[assignment]
        return fields
    except Exception as error:  # whatever the decoder raises is the payload's fault (design section 4)
        raise DecodeError(f"{written.name}: {type(error).__name__}: {error}") from error
