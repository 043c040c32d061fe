"""A writer of Avro for each event model: plain Python, generated once, from the model's fields to bytes in one pass.

It writes the values that models usually hold, each of exactly the type that its field has, as fastavro writes them.
At any other value it raises, no matter what: whether such a value is refused, and with which words, or is written all
the same, is left to `datum` and fastavro, which stay the reference.
"""

import itertools
import struct
from collections.abc import Callable, Mapping
from datetime import UTC, date, datetime, timedelta
from enum import Enum
from typing import Any, NoReturn, TypeAlias
from uuid import UUID

from pydantic import BaseModel
from pydantic_core import SchemaSerializer

from offsetzero.schemas.avro import Schema
from offsetzero.schemas.datum import FIRST_MILLI, LAST_MILLI, LONG_MAX, LONG_MIN

Write: TypeAlias = Callable[[Any], bytes]

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_MILLISECOND = timedelta(milliseconds=1)
_SIX_BYTES, _SEVEN_BYTES = 2**34, 2**41
_six_bytes = struct.Struct("6B").pack
_EPOCH_DAY = date(1970, 1, 1).toordinal()


class Unusual(Exception):
    """A value that this writer leaves to the reference."""


def unusual() -> NoReturn:
    raise Unusual


def varint(n: int) -> bytes:
    """A number that is zigzagged already, seven bits a byte."""
    if n < 0x80:
        return bytes((n,))
    if n < 0x4000:
        return bytes((n & 0x7F | 0x80, n >> 7))
    if n < 0x20_0000:
        return bytes((n & 0x7F | 0x80, n >> 7 & 0x7F | 0x80, n >> 14))
    if n < 0x1000_0000:
        return bytes((n & 0x7F | 0x80, n >> 7 & 0x7F | 0x80, n >> 14 & 0x7F | 0x80, n >> 21))
    head = bytes((n & 0x7F | 0x80, n >> 7 & 0x7F | 0x80, n >> 14 & 0x7F | 0x80, n >> 21 & 0x7F | 0x80))
    return head + varint(n >> 28)


def long(value: int) -> bytes:
    if type(value) is not int or not LONG_MIN <= value <= LONG_MAX:
        raise Unusual
    return varint(value << 1 ^ value >> 63)


def timestamp(value: datetime) -> bytes:
    if type(value) is not datetime:
        raise Unusual
    millis = (value - _EPOCH) // _MILLISECOND  # a naive datetime raises here
    if _SIX_BYTES <= millis < _SEVEN_BYTES:  # of 1970 to 2039: nearly every event has one
        n = millis << 1
        return _six_bytes(
            n & 127 | 128, n >> 7 & 127 | 128, n >> 14 & 127 | 128, n >> 21 & 127 | 128, n >> 28 & 127 | 128, n >> 35
        )
    if not FIRST_MILLI <= millis <= LAST_MILLI:
        raise Unusual
    return varint(millis << 1 ^ millis >> 63)


def day(value: date) -> bytes:
    if type(value) is not date:
        raise Unusual
    days = value.toordinal() - _EPOCH_DAY
    return varint(days << 1 ^ days >> 63)


def symbol(value: Enum) -> Any:
    if not isinstance(value, Enum):
        raise Unusual
    return value.value


_SIZES = tuple(varint(2 * size) for size in range(512))
_GLOBALS: dict[str, Any] = {
    **{each.__name__: each for each in (unusual, symbol, varint, long, timestamp, day, UUID, BaseModel)},
    "sizes": _SIZES,
    "join": b"".join,
    "encode": str.encode,
    "double": struct.Struct("<d").pack,
    "uuid": SchemaSerializer({"type": "uuid"}).to_json,  # between quotation marks
}
# The bytes of a value {v}, in pieces: expressions. `n`, `s` and `x` are names of the function that they
# stand in; `str.encode` raises for what is no text, and for half a character.
_SIZE = "(sizes[n] if (n := len(s := {s})) < 512 else varint(2 * n))"
_PIECES: dict[str, tuple[str, ...]] = {
    "boolean": ("(b'\\1' if (x := {v}) is True else b'\\0' if x is False else unusual())",),
    "long": ("long({v})",),
    "double": ("(double(x) if type(x := {v}) is float else unusual())",),
    "bytes": (_SIZE.format(s="x if type(x := {v}) is bytes else unusual()"), "s"),
    "string": (_SIZE.format(s="encode({v})"), "s"),
    "uuid": (r"b'\x48'", "(uuid(x)[1:-1] if type(x := {v}) is UUID else unusual())"),
    "timestamp-millis": ("timestamp({v})",),
    "date": ("day({v})",),
}
_LITERAL = "b'", 'b"'
_RECORD = """\
def {name}(value):
    if BaseModel not in value.__class__.__mro__: unusual()
    fields = value.__dict__
    return {result}"""
_BLOCKS = """\
def {name}(value):
    if type(value) is not {kind}: unusual()
    if not value: return b'\\0'
    items = [{item} for {each}]
    return join((long(len(items)), *items, b'\\0'))"""


def compile_write(schema: Schema, named: Mapping[str, Any], header: bytes) -> Write:
    """A function from an event to its payload.

    Args:
        schema: of an event's model (`offsetzero.schemas.avro`), parsed by fastavro: its unions are `X | None`.
        named: the named types of the schema, by full name.
        header: what its payloads begin with.

    Raises:
        Exception: any, by the returned function: then the reference decides.
    """
    return _Generator(named).compile(schema, header)


class _Generator:
    """Writes expressions; field names are the model's own, which `avro` has checked to be plain names."""

    def __init__(self, named: Mapping[str, Any]) -> None:
        self._named = named
        self._globals = dict(_GLOBALS)
        self._records: dict[str, str] = {}
        self._numbers = itertools.count()

    def compile(self, schema: Any, header: bytes) -> Write:
        self._define(_RECORD, "write", result=_one([repr(header), *self._fields(schema)]))
        write: Write = self._globals["write"]
        return write

    def _value(self, schema: Any, value: str) -> list[str]:
        """The pieces of a value, which an expression gives."""
        if isinstance(schema, list):
            (inner,) = (branch for branch in schema if branch != "null")
            null, other = (repr(bytes([2 * schema.index(branch)])) for branch in ("null", inner))
            # `o` stays what it is while the inner value is written: that is never optional itself.
            return [f"({null} if (o := {value}) is None else {_one([other, *self._value(inner, 'o')])})"]
        if isinstance(schema, str):
            return _pieces(schema, value) if schema in _PIECES else self._value(self._named[schema], value)
        if "logicalType" in schema:
            return _pieces(schema["logicalType"], value)
        kind = schema["type"]
        if kind == "record":
            return [f"{self._record(schema)}({value})"]
        if kind == "array":
            return [self._blocks("list", "item in value", self._value(schema["items"], "item")) + f"({value})"]
        if kind == "map":
            item = [*_pieces("string", "key"), *self._value(schema["values"], "item")]
            return [self._blocks("dict", "key, item in value.items()", item) + f"({value})"]
        if kind == "enum":
            return [f"{self._symbols(schema)}[x if type(x := {value}) is str else symbol(x)]"]
        return self._value(kind, value)

    def _fields(self, schema: Any) -> list[str]:
        kinds = ((f"fields[{field['name']!r}]", field["type"]) for field in schema["fields"])
        return [piece for value, kind in kinds for piece in self._value(kind, value)]

    def _record(self, schema: Any) -> str:
        name = self._records.get(schema["name"])
        if name is None:  # known before it is written: a model may contain itself
            name = self._records[schema["name"]] = self._name("record")
            self._define(_RECORD, name, result=_one(self._fields(schema)))
        return name

    def _blocks(self, kind: str, each: str, item: list[str]) -> str:
        name = self._name(kind)
        self._define(_BLOCKS, name, kind=kind, each=each, item=_one(item))
        return name

    def _symbols(self, schema: Any) -> str:
        name = self._name("symbols")
        self._globals[name] = {symbol: varint(2 * at) for at, symbol in enumerate(schema["symbols"])}
        return name

    def _name(self, kind: str) -> str:
        return f"{kind}{next(self._numbers)}"

    def _define(self, template: str, name: str, **parts: str) -> None:
        exec(template.format(name=name, **parts), self._globals)  # noqa: S102 - see the class


def _pieces(kind: str, value: str) -> list[str]:
    return [piece.format(v=value) for piece in _PIECES[kind]]


def _one(pieces: list[str]) -> str:
    """One expression of several pieces."""
    parts: list[str] = []
    for piece in pieces:
        if parts and piece.startswith(_LITERAL) and parts[-1].startswith(_LITERAL):
            parts[-1] += f" {piece}"  # literals beside each other are one
        else:
            parts.append(piece)
    return parts[0] if len(parts) == 1 else f"join(({', '.join(parts)}))"
