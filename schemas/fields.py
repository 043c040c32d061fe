"""From the raw values of a record (`offsetzero.schemas.reader`) to what its model validates: logical types, by name.

A function is generated for each schema, as in `reader`; a time in UTC, a UUID and a date are what fastavro makes.
"""

from collections.abc import Callable, Mapping
from datetime import UTC, date, datetime, timedelta
from typing import Any, TypeAlias
from uuid import UUID

from pydantic import ValidationError
from pydantic_core import SchemaValidator

Convert: TypeAlias = Callable[[tuple[Any, ...]], dict[str, Any]]


def compile_convert(schema: Any, named: Mapping[str, Any]) -> Convert:
    """A function from the values of a record to its fields.

    Args:
        schema: of an event's model (`offsetzero.schemas.avro`), parsed by fastavro: its unions are `X | None`.
        named: the named types of the schema, by full name.

    Raises:
        ValueError: by the returned function: text that is no UUID.
        OverflowError: by the returned function: a time or date that Python does not have.
    """
    fast = _Generator(named, _GLOBALS).compile(schema)
    exact = _Generator(named, {**_GLOBALS, "uuid": UUID}).compile(schema)

    def convert(values: tuple[Any, ...]) -> dict[str, Any]:
        try:
            return fast(values)
        except ValidationError:
            return exact(values)

    return convert


_GLOBALS: dict[str, Any] = {
    "uuid": SchemaValidator({"type": "uuid"}).validate_python,  # reads the usual forms in a sixth of the time
    "epoch": datetime(1970, 1, 1, tzinfo=UTC),
    "millisecond": timedelta(milliseconds=1),
    "epoch_day": date(1970, 1, 1),
    "day": timedelta(days=1),
}
_LOGICAL = {
    "uuid": "uuid({})",
    "timestamp-millis": "epoch + {} * millisecond",
    "date": "epoch_day + {} * day",
}


class _Generator:
    """Writes expressions; field names are the model's own, which `avro` has checked to be plain names."""

    def __init__(self, named: Mapping[str, Any], names: Mapping[str, Any]) -> None:
        self._named = named
        self._globals = dict(names)
        self._records: dict[str, str] = {}

    def compile(self, schema: Any) -> Convert:
        found: Convert = self._globals[self._record(schema)]
        return found

    def _value(self, schema: Any, value: str) -> str:
        """An expression for a value; the same one when there is nothing to convert."""
        if isinstance(schema, list):
            (inner,) = (self._value(branch, value) for branch in schema if branch != "null")
            return value if inner == value else f"(None if {value} is None else {inner})"
        if isinstance(schema, str):
            return self._value(self._named[schema], value) if schema in self._named else value
        if "logicalType" in schema:
            return _LOGICAL[schema["logicalType"]].format(value)
        kind = schema["type"]
        if kind == "record":
            return f"{self._record(schema)}({value})"
        if kind == "array":
            inner = self._value(schema["items"], "x")
            return value if inner == "x" else f"[{inner} for x in {value}]"
        if kind == "map":
            inner = self._value(schema["values"], "x")
            return value if inner == "x" else f"{{k: {inner} for k, x in {value}.items()}}"
        return value

    def _record(self, schema: Any) -> str:
        name = self._records.get(schema["name"])
        if name is None:  # known before it is written: a model may contain itself
            name = self._records[schema["name"]] = f"record{len(self._records)}"
            fields = enumerate(schema["fields"])
            items = [f"{field['name']!r}: {self._value(field['type'], f'r[{at}]')}" for at, field in fields]
            exec(f"def {name}(r): return {{{', '.join(items)}}}", self._globals)  # noqa: S102 - see the class
        return name
