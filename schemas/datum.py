"""From an event to the plain values that fastavro writes, each checked against its Avro type.

fastavro writes `1.9` and `True` as the long 1, takes a naive datetime for local time, and leaves out what it
does not know. Here a value that is not exactly of its type is refused, also one that came past pydantic by
`model_construct` or `model_copy(update=…)`.
"""

import enum
from collections.abc import Callable, Mapping
from datetime import UTC, date, datetime, timedelta
from typing import Any, TypeAlias
from uuid import UUID

from pydantic import BaseModel

from offsetzero.schemas.avro import Schema

Prepare: TypeAlias = Callable[[Any], Any]

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_MILLISECOND = timedelta(milliseconds=1)
FIRST_MILLI = (datetime.min.replace(tzinfo=UTC) - _EPOCH) // _MILLISECOND
LAST_MILLI = (datetime.max.replace(tzinfo=UTC) - _EPOCH) // _MILLISECOND
LONG_MIN, LONG_MAX = -(2**63), 2**63 - 1


class BadValue(Exception):
    """A value that its type does not allow. `path` names the field, innermost part first."""

    def __init__(self, problem: str) -> None:
        super().__init__(problem)
        self.path: list[str] = []


def to_millis(value: Any) -> int:
    """Milliseconds since 1970 in UTC, rounded down, also before 1970."""
    if not isinstance(value, datetime):
        raise BadValue(f"a datetime is needed, not {value!r}")
    if value.utcoffset() is None:
        raise BadValue(f"{value.isoformat()} has no time zone; an aware datetime is needed")
    millis = (value - _EPOCH) // _MILLISECOND
    if not FIRST_MILLI <= millis <= LAST_MILLI:
        raise BadValue(f"{value.isoformat()} is outside the years 1 to 9999 in UTC; no reader could read it")
    return millis


def compile_prepare(schema: Schema, named: Mapping[str, Any]) -> Prepare:
    """A function from an event to a datum of its schema.

    Args:
        schema: the schema of the event's model, parsed by fastavro.
        named: the named types of the schema, by full name.

    Raises:
        BadValue: by the returned function.
    """
    return _Compiler(named).prepare(schema)


def _long(value: Any) -> int:
    if type(value) is not int:
        raise BadValue(f"an int is needed, not {value!r}")
    if not LONG_MIN <= value <= LONG_MAX:
        raise BadValue(f"{value} does not fit 64 bits")
    return value


def _double(value: Any) -> float:
    if type(value) is not float:
        raise BadValue(f"a float is needed, not {value!r}")
    return value


def _boolean(value: Any) -> bool:
    if type(value) is not bool:
        raise BadValue(f"True or False is needed, not {value!r}")
    return value


def _string(value: Any) -> str:
    if not isinstance(value, str):
        raise BadValue(f"text is needed, not {value!r}")
    return value


def _bytes(value: Any) -> bytes:
    if not isinstance(value, bytes):
        raise BadValue(f"bytes are needed, not {value!r}")
    return value


def _uuid(value: Any) -> str:
    if not isinstance(value, UUID):
        raise BadValue(f"a UUID is needed, not {value!r}")
    return str(value)


def _date(value: Any) -> int:
    if not isinstance(value, date) or isinstance(value, datetime):
        raise BadValue(f"a date is needed, not {value!r}")
    return (value - _EPOCH.date()).days


_PRIMITIVES: dict[str, Prepare] = {
    "long": _long,
    "double": _double,
    "boolean": _boolean,
    "string": _string,
    "bytes": _bytes,
}
_LOGICAL: dict[str, Prepare] = {"uuid": _uuid, "timestamp-millis": to_millis, "date": _date}


class _Compiler:
    def __init__(self, named: Mapping[str, Any]) -> None:
        self._named = named
        self._records: dict[str, Prepare] = {}

    def prepare(self, schema: Schema) -> Prepare:
        if isinstance(schema, list):
            (inner,) = (branch for branch in schema if branch != "null")
            return _optional(self.prepare(inner))
        if isinstance(schema, str):
            return _PRIMITIVES.get(schema) or self._by_name(schema, self._named.get(schema))
        if "logicalType" in schema:
            return _LOGICAL[schema["logicalType"]]
        kind = schema["type"]
        if kind == "array":
            return _array(self.prepare(schema["items"]))
        if kind == "map":
            return _map(self.prepare(schema["values"]))
        if kind in ("record", "enum"):
            return self._by_name(schema["name"], schema)
        return self.prepare(kind)

    def _by_name(self, name: str, definition: Any) -> Prepare:
        if definition["type"] == "enum":
            return _enum(frozenset(definition["symbols"]))
        if name not in self._records:
            self._records[name] = lambda value: self._records[name](value)  # a model may hold itself
            self._records[name] = _record(
                [(field["name"], self.prepare(field["type"])) for field in definition["fields"]]
            )
        return self._records[name]


def _record(fields: list[tuple[str, Prepare]]) -> Prepare:
    def prepare(value: Any) -> dict[str, Any]:
        if not isinstance(value, BaseModel):
            raise BadValue(f"a model is needed, not {value!r}")
        found = value.__dict__
        datum: dict[str, Any] = {}
        for name, inner in fields:
            try:
                datum[name] = inner(found[name])
            except BadValue as error:
                error.path.append(name)
                raise
            except KeyError:
                absent = BadValue("missing")
                absent.path.append(name)
                raise absent from None
        return datum

    return prepare


def _optional(inner: Prepare) -> Prepare:
    return lambda value: None if value is None else inner(value)


def _array(inner: Prepare) -> Prepare:
    def prepare(value: Any) -> list[Any]:
        if not isinstance(value, list):
            raise BadValue(f"a list is needed, not {value!r}")
        return [inner(item) for item in value]

    return prepare


def _map(inner: Prepare) -> Prepare:
    def prepare(value: Any) -> dict[str, Any]:
        if not isinstance(value, dict):
            raise BadValue(f"a dict is needed, not {value!r}")
        return {_string(key): inner(item) for key, item in value.items()}

    return prepare


def _enum(symbols: frozenset[str]) -> Prepare:
    def prepare(value: Any) -> str:
        symbol = value.value if isinstance(value, enum.Enum) else value
        if symbol not in symbols:
            raise BadValue(f"one of {sorted(symbols)} is needed, not {value!r}")
        return str(symbol)

    return prepare
