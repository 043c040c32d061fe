"""An event model with all that is compiled from it."""

from typing import Any, NoReturn

from pydantic import ValidationError

from offsetzero.errors import DecodeError
from offsetzero.schemas import avro, writer
from offsetzero.schemas.datum import Prepare, compile_prepare
from offsetzero.schemas.defaults import convert_defaults
from offsetzero.schemas.encoder import Write, compile_write
from offsetzero.schemas.event import Event
from offsetzero.schemas.fields import compile_convert
from offsetzero.schemas.lazy import State, compile_lazy, state_of
from offsetzero.schemas.validation import takes_as_is

MARKER = b"\xc3\x01"
"""Begins a payload in Avro's single-object encoding; the fingerprint of its schema follows in eight bytes."""


class Given(set[str]):
    """The fields that an event was given, where these are all: one set for all events of a model, so it cannot change.

    A set of its own costs an event more than the rest of its model. What copies or pickles an event gets a plain set.
    """

    def __copy__(self) -> set[str]:
        return set(self)

    def __deepcopy__(self, _: Any) -> set[str]:
        return set(self)

    def __reduce__(self) -> tuple[type[set[str]], tuple[list[str]]]:
        return set, (list(self),)

    def _refuse(self, *_: Any) -> NoReturn:
        raise TypeError("all events of a model share this set: change a copy of it")

    add = clear = difference_update = discard = intersection_update = pop = remove = _refuse
    symmetric_difference_update = update = __iand__ = __ior__ = __isub__ = __ixor__ = _refuse


class Compiled:
    """One event model, ready to write and read its payloads.

    Attributes:
        schema: the schema with which this process writes it.
        header: what payloads of that schema begin with.
        write: the payload of an event; raises for what only `prepare` and fastavro can decide on.
        prepare: makes of an event what fastavro writes.
        read: reads the values of a payload of that schema.
        holds_itself: whether an event may be nested as deep as its values are, deeper than readers go.
        reader: what fastavro resolves other writers' schemas to.
        lazy: an event of the values of a payload of that schema, made at the first look.
        lazy_resolved: an event of one value, the fields that were resolved from another writer's schema.
    """

    __slots__ = (
        *("event", "header", "holds_itself", "lazy", "lazy_resolved", "prepare", "read", "reader", "schema", "write"),
        *("_convert", "_frozen", "_given", "_validates"),
    )

    def __init__(self, event: type[Event]) -> None:
        self.event = event
        self.schema = writer.of(avro.schema_of(event))
        self.header = MARKER + bytes.fromhex(self.schema.fingerprint)
        self.write: Write = compile_write(self.schema.parsed, self.schema.named, self.header)
        self.prepare: Prepare = compile_prepare(self.schema.parsed, self.schema.named)
        self.read = self.schema.read
        self.holds_itself = _holds_itself(self.schema.parsed, ())
        self.reader = convert_defaults(writer.of(avro.schema_of(event)))
        self.lazy = compile_lazy(event, self.state)
        self.lazy_resolved = compile_lazy(event, lambda fields: state_of(self.from_fields(*fields)))
        self._convert = compile_convert(self.schema.parsed, self.schema.named)
        self._given = Given(event.model_fields)
        self._frozen = bool(event.model_config.get("frozen"))  # otherwise pydantic adds to the set
        self._validates = not takes_as_is(event)

    def state(self, values: tuple[Any, ...]) -> State:
        """The state of the event that was written with this very schema.

        Raises:
            DecodeError: a value that its type or the model does not allow.
        """
        try:
            fields = self._convert(values)
        except (ValueError, OverflowError) as error:
            raise DecodeError(f"{self.schema.name}: {type(error).__name__}: {error}") from error
        if self._validates:
            return state_of(self.from_fields(fields))
        return fields, self._given if self._frozen else set(self._given), None, None

    def from_fields(self, fields: dict[str, Any]) -> Event:
        """The event of fields as fastavro gives them.

        Raises:
            DecodeError: a value that the model does not allow.
        """
        try:
            event = self.event.model_validate(fields)
        except ValidationError as error:
            raise self._refusal(error) from None
        if type(event) is not self.event:
            raise DecodeError(f"{self.event.event_type}: its validators made a {type(event).__name__} of it")
        return event

    def from_json(self, payload: bytes) -> Event:
        """The event that was written as JSON.

        Raises:
            DecodeError: no JSON, or not of this event.
        """
        try:
            return self.event.model_validate_json(payload)
        except ValidationError as error:
            raise self._refusal(error) from None

    def _refusal(self, error: ValidationError) -> DecodeError:
        problems = "; ".join(f"{'.'.join(str(part) for part in item['loc'])}: {item['msg']}" for item in error.errors())
        return DecodeError(f"{self.event.event_type}: {problems}")


def _holds_itself(schema: Any, around: tuple[str, ...]) -> bool:
    """Whether a record is within itself: its definition comes first, later it is only named."""
    if isinstance(schema, str):
        return schema in around
    if isinstance(schema, list):
        return any(_holds_itself(branch, around) for branch in schema)
    match schema["type"]:
        case "record":
            return any(_holds_itself(field["type"], (*around, schema["name"])) for field in schema["fields"])
        case "array":
            return _holds_itself(schema["items"], around)
        case "map":
            return _holds_itself(schema["values"], around)
        case other:
            return not isinstance(other, str) and _holds_itself(other, around)
