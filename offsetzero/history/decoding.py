"""Records decoded for people: attributes, data, and why something cannot be read."""

import json
import math
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import date
from enum import StrEnum
from types import TracebackType
from typing import Any, Self

from offsetzero.errors import SchemaError, SchemasUnavailable
from offsetzero.schemas import cloudevents
from offsetzero.schemas.codec import Codec
from offsetzero.schemas.metadata import Metadata
from offsetzero.schemas.structured import is_json
from offsetzero.settings import Settings
from offsetzero.topics.reading import LogRecord
from offsetzero.topics.schema_log import SchemaLog


@dataclass(frozen=True, slots=True)
class Decoded:
    """What is in a record.

    `meta` is None for what is no CloudEvent; `data` None for a tombstone, and where `problem` says why it cannot
    be read.
    """

    meta: Metadata | None
    data: Any
    problem: str | None = None


class Decoder:
    """Decodes records by their writers' schemas, as they were written; a context manager. No model is needed.

    Args:
        settings: name the cluster, whose topic `schemas` has those that are in no contract.
    """

    def __init__(self, settings: Settings) -> None:
        self._schemas = SchemaLog(settings)
        self._codec = Codec(self._schemas.find)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._schemas.close()

    def decode(self, record: LogRecord) -> Decoded:
        """What is in a record; never an exception for what a record holds."""
        if not record.is_whole:
            return Decoded(None, None, "a header's name is not UTF-8: the client reads none of its headers")
        if not cloudevents.is_cloudevent(record.headers):
            return self._raw(record.value, None, None if record.value is None else "not a CloudEvent")
        try:
            message = cloudevents.read(record.value, record.headers)
        except SchemaError as error:
            return self._raw(record.value, None, str(error))
        if message.data is None:
            return Decoded(message.meta, None)
        try:
            if is_json(message.content_type):
                return Decoded(message.meta, json.loads(message.data))
            return Decoded(message.meta, plain(self._codec.decode_fields(message.data)))
        except (SchemaError, SchemasUnavailable, ValueError, RecursionError) as error:
            return Decoded(message.meta, None, str(error))

    def _raw(self, value: bytes | None, meta: Metadata | None, problem: str | None) -> Decoded:
        """A value about which the headers say nothing that can be read: perhaps it is readable all the same."""
        if value is None:
            return Decoded(meta, None, problem)
        try:
            return Decoded(meta, plain(self._codec.decode_fields(value)), problem)
        except (SchemaError, SchemasUnavailable):
            pass
        try:
            return Decoded(meta, json.loads(value), problem)
        except (ValueError, RecursionError):
            return Decoded(meta, None, problem)


def plain(value: Any) -> Any:
    """A value as JSON has it: times in ISO 8601, bytes as text with what is none escaped, all else by its name."""
    if value is None or isinstance(value, bool | int | str):
        return str(value) if isinstance(value, StrEnum) else value
    if isinstance(value, float):
        return value if math.isfinite(value) else str(value)
    if isinstance(value, Mapping):
        return {str(name): plain(one) for name, one in value.items()}
    if isinstance(value, list | tuple):
        return [plain(one) for one in value]
    if isinstance(value, date):  # a datetime is one
        return value.isoformat()
    return as_text(value) if isinstance(value, bytes) else str(value)


def as_text(value: bytes | None) -> str | None:
    """Bytes as text, with what is none escaped."""
    return value.decode(errors="backslashreplace") if value is not None else None
