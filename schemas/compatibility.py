"""Whether old and new readers and writers of an event type can live together. Pure; rules of Avro 1.12 resolution.

Stricter than Avro in two points: a changed logical type counts as a break (the fingerprint does not show it, so
readers could not tell), and so does string for bytes (not all bytes are text).
"""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from offsetzero.schemas.avro import Schema
from offsetzero.schemas.frozen import Contract
from offsetzero.schemas.writer import AvroSchema

_PROMOTIONS = {
    ("int", "long"),
    ("int", "float"),
    ("int", "double"),
    ("long", "float"),
    ("long", "double"),
    ("float", "double"),
}


def full_transitive(new: AvroSchema, old: Sequence[Contract]) -> list[str]:
    """Why the new schema breaks a reader or a writer of any earlier version; empty when it does not.

    Both directions count: consumers are upgraded before producers in one place and after them in another, and
    the log keeps what every version ever wrote.
    """
    problems = []
    for contract in old:
        problems += [
            f"the new version cannot read what {contract.label} wrote: {problem}"
            for problem in unreadable(reader=new, writer=contract.schema)
        ]
        problems += [
            f"{contract.label} cannot read what the new version writes: {problem}"
            for problem in unreadable(reader=contract.schema, writer=new)
        ]
    return problems


def unreadable(*, reader: AvroSchema, writer: AvroSchema) -> list[str]:
    """Why a reader's schema cannot read what a writer's schema wrote, each with the path of the field."""
    return list(_Pair(reader.named, writer.named).problems(reader.name, reader.parsed, writer.parsed))


class _Pair:
    """One reader and one writer. Records that contain themselves are compared once."""

    def __init__(self, readers: Mapping[str, Any], writers: Mapping[str, Any]) -> None:
        self._readers = readers
        self._writers = writers
        self._compared: set[tuple[str, str]] = set()

    def problems(self, path: str, reader: Schema, writer: Schema) -> Iterator[str]:
        reader, writer = _defined(reader, self._readers), _defined(writer, self._writers)
        if isinstance(writer, list):
            for branch in writer:
                yield from self.problems(path, reader, branch)
        elif isinstance(reader, list):
            if not any(self._readable(path, branch, writer) for branch in reader):
                yield f"{path}: {_kind(writer)} is none of {', '.join(_kind(branch) for branch in reader)}"
        elif _logical(reader) != _logical(writer):
            yield f"{path}: {_shown(writer)} became {_shown(reader)}"
        elif _kind(reader) != _kind(writer):
            if (_kind(writer), _kind(reader)) not in _PROMOTIONS:
                yield f"{path}: {_shown(writer)} cannot be read as {_shown(reader)}"
        elif isinstance(reader, dict) and isinstance(writer, dict):
            yield from self._same_kind(path, reader, writer)

    def _readable(self, path: str, reader: Schema, writer: Schema) -> bool:
        trial = _Pair(self._readers, self._writers)
        trial._compared = set(self._compared)
        return not any(trial.problems(path, reader, writer))

    def _same_kind(self, path: str, reader: dict[str, Any], writer: dict[str, Any]) -> Iterator[str]:
        match reader["type"]:
            case "record":
                yield from self._records(path, reader, writer)
            case "enum":
                yield from _enums(path, reader, writer)
            case "array":
                yield from self.problems(f"{path}[]", reader["items"], writer["items"])
            case "map":
                yield from self.problems(f"{path}{{}}", reader["values"], writer["values"])
            case "fixed":
                if reader["size"] != writer["size"] or not _same_name(reader, writer):
                    yield f"{path}: fixed types of another name or size"

    def _records(self, path: str, reader: dict[str, Any], writer: dict[str, Any]) -> Iterator[str]:
        if not _same_name(reader, writer):
            yield f"{path}: the record {writer['name']} is called {reader['name']}; give it an alias"
            return
        pair = (reader["name"], writer["name"])
        if pair in self._compared:
            return
        self._compared.add(pair)
        written = {field["name"]: field for field in writer["fields"]}
        for field in reader["fields"]:
            names = [name for name in (field["name"], *field.get("aliases", ())) if name in written]
            where = f"{path}.{field['name']}"
            if len(names) > 1:
                yield f"{where}: the writer has {' and '.join(names)}, and it is not clear which one is meant"
            elif names:
                yield from self.problems(where, field["type"], written[names[0]]["type"])
            elif "default" not in field:
                yield f"{where}: not written, and without a default"


def _enums(path: str, reader: dict[str, Any], writer: dict[str, Any]) -> Iterator[str]:
    if not _same_name(reader, writer):
        yield f"{path}: the enum {writer['name']} is called {reader['name']}"
    unknown = [symbol for symbol in writer["symbols"] if symbol not in reader["symbols"]]
    if unknown and "default" not in reader:
        yield f"{path}: {', '.join(unknown)} is unknown to a reader without a default symbol"


def _defined(schema: Schema, named: Mapping[str, Any]) -> Schema:
    if isinstance(schema, str) and schema in named:
        found: dict[str, Any] = named[schema]
        return found
    return schema


def _same_name(reader: dict[str, Any], writer: dict[str, Any]) -> bool:
    return writer["name"] in (reader["name"], *reader.get("aliases", ()))


def _kind(schema: Schema) -> str:
    if isinstance(schema, dict):
        return str(schema["type"])
    return "union" if isinstance(schema, list) else schema


def _logical(schema: Schema) -> str | None:
    return schema.get("logicalType") if isinstance(schema, dict) else None


def _shown(schema: Schema) -> str:
    logical = _logical(schema)
    return f"{_kind(schema)} ({logical})" if logical else _kind(schema)
