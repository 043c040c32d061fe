"""Reader defaults as Python values: fastavro hands a schema's default out as the JSON has it.

So a missing timestamp would come as an int, missing bytes as text. Mutable defaults would be shared between
records, too; pydantic copies lists and dicts when it validates them.
"""

from collections.abc import Mapping
from datetime import UTC, date, datetime, timedelta
from typing import Any
from uuid import UUID

from offsetzero.schemas.avro import Schema
from offsetzero.schemas.writer import AvroSchema

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


def convert_defaults(schema: AvroSchema) -> Any:
    """The parsed schema for fastavro's reader, its defaults converted in place."""
    for definition in schema.named.values():
        _convert_record(definition, schema.named)
    _convert_record(schema.parsed, schema.named)
    return schema.parsed


def _convert_record(definition: Any, named: Mapping[str, Any]) -> None:
    for field in definition.get("fields", ()):
        if "default" in field and "__converted" not in field:
            field["default"] = value_of(field["default"], field["type"], named)
            field["__converted"] = True


def value_of(default: Any, schema: Schema, named: Mapping[str, Any]) -> Any:
    """A default of a schema as the value that a reader would have read."""
    if isinstance(schema, list):
        return None if default is None else value_of(default, schema[0], named)
    if isinstance(schema, str):
        if schema == "bytes":
            return default.encode("latin-1")
        return value_of(default, named[schema], named) if schema in named else default
    match schema.get("logicalType"):
        case "timestamp-millis":
            return _EPOCH + timedelta(milliseconds=default)
        case "date":
            return date(1970, 1, 1) + timedelta(days=default)
        case "uuid":
            return UUID(default)
    match schema["type"]:
        case "array":
            return [value_of(item, schema["items"], named) for item in default]
        case "map":
            return {key: value_of(item, schema["values"], named) for key, item in default.items()}
        case "record":
            return {
                field["name"]: value_of(default[field["name"]], field["type"], named)
                for field in schema["fields"]
                if field["name"] in default
            }
        case kind:
            return default if kind == "enum" else value_of(default, kind, named)
