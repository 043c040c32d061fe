"""A parsed Avro schema with its fingerprint: what the codec, the contracts and the topic `schemas` share."""

import copy
import json
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from fastavro.schema import fingerprint, parse_schema, to_parsing_canonical_form

from offsetzero.errors import SchemaError
from offsetzero.schemas.avro import Schema, to_json
from offsetzero.schemas.reader import Read, compile_read

MAX_SCHEMA_CHARS = 256 * 1024
_MAX_NESTING = 64


@dataclass(frozen=True)
class AvroSchema:
    """One Avro schema, immutable.

    `text` is its JSON; `parsed` and `named` are fastavro's forms of it; `fingerprint` is CRC-64-AVRO in hex,
    in the byte order of the wire. The fingerprint covers names, types and order, not defaults or logical types.
    """

    text: str
    parsed: Any
    named: Mapping[str, Any]
    fingerprint: str

    @property
    def name(self) -> str:
        """Full name of the record."""
        return str(self.parsed["name"])

    @cached_property
    def read(self) -> Read:
        """Reads exactly one datum of this schema, strictly, as the values that are on the wire."""
        return compile_read(self.parsed, self.named)


def load(text: str) -> AvroSchema:
    """Parse a schema's JSON.

    Raises:
        SchemaError: it is no valid Avro record schema, or larger or deeper than any sensible one.
    """
    if len(text) > MAX_SCHEMA_CHARS:
        raise SchemaError(f"a schema of {len(text)} characters; the limit is {MAX_SCHEMA_CHARS}")
    try:
        schema = json.loads(text)
        _check_nesting(schema, _MAX_NESTING)
        return of(schema)
    except SchemaError:
        raise
    except Exception as error:  # fastavro refuses with many kinds of exception
        raise SchemaError(f"not an Avro schema: {type(error).__name__}: {error}") from error


def of(schema: Schema) -> AvroSchema:
    """The parsed form of a schema that this program made.

    Raises:
        SchemaError: not a record.
    """
    text = to_json(schema)
    named: dict[str, Any] = {}
    parsed = parse_schema(copy.deepcopy(schema), named_schemas=named)
    if not isinstance(parsed, dict) or parsed.get("type") != "record":
        raise SchemaError("an event's schema is a record")
    printed = fingerprint(to_parsing_canonical_form(parsed), "CRC-64-AVRO")
    return AvroSchema(text=text, parsed=parsed, named=named, fingerprint=printed)


def _check_nesting(schema: Any, left: int) -> None:
    if left < 0:
        raise SchemaError(f"a schema nested more than {_MAX_NESTING} deep")
    if isinstance(schema, dict):
        for value in schema.values():
            _check_nesting(value, left - 1)
    elif isinstance(schema, list):
        for value in schema:
            _check_nesting(value, left - 1)
