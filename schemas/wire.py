"""Strict walking of Avro binary: proves that bytes are one well-formed datum before any decoder sees them.

fastavro reads some malformed bytes as something else (a boolean byte 2, a union index of -1, an 11-byte
varint, an int over 32 bits, trailing bytes), lets five bytes grow to ten million nulls, and recurses without
a bound. `compile_check` makes of a writer schema a function that refuses all of these.
"""

from collections.abc import Callable, Mapping
from typing import Any, TypeAlias

from offsetzero.errors import DecodeError
from offsetzero.schemas.avro import Schema

Check: TypeAlias = Callable[[bytes, int], None]
# (data, position, depth) -> position behind the datum
_Walk: TypeAlias = Callable[[bytes, int, "_Budget"], int]

MAX_DEPTH = 64
"""Nested records, arrays and maps in one payload; a schema may refer to itself."""
MAX_EMPTY_VALUES = 10_000
"""Values that take no byte (nulls, empty records), in one payload: a few bytes must not fill the memory."""
_INT_MIN, _INT_MAX = -(2**31), 2**31 - 1


class _Budget:
    """What one payload may still use."""

    __slots__ = ("depth", "empty_values")

    def __init__(self) -> None:
        self.depth = MAX_DEPTH
        self.empty_values = MAX_EMPTY_VALUES


def compile_check(schema: Schema, named: Mapping[str, Any]) -> Check:
    """A function `check(data, start)` that returns when `data[start:]` is exactly one datum of the schema.

    Args:
        schema: parsed by fastavro, so that all names are full.
        named: the named types of the schema, by full name.

    Raises:
        DecodeError: by the returned function, saying at which byte what is wrong.
    """
    walk = _Compiler(named).walk(schema)

    def check(data: bytes, start: int) -> None:
        try:
            end = walk(data, start, _Budget())
        except IndexError:
            raise DecodeError(f"payload ends in the middle of a value ({len(data)} bytes)") from None
        if end != len(data):
            raise DecodeError(f"{len(data) - end} bytes behind the value, from byte {end}")

    return check


def read_long(data: bytes, at: int) -> tuple[int, int]:
    """A zigzag varint of at most 64 bits, and the position behind it.

    Raises:
        DecodeError: longer than ten bytes, or over 64 bits.
        IndexError: the data end inside it.
    """
    byte = data[at]
    at += 1
    if byte < 0x80:
        return (byte >> 1) ^ -(byte & 1), at
    value = byte & 0x7F
    shift = 7
    while byte >= 0x80:
        if shift > 63:
            raise DecodeError(f"byte {at}: a number of more than ten bytes")
        byte = data[at]
        at += 1
        value |= (byte & 0x7F) << shift
        shift += 7
    if value >> 64:
        raise DecodeError(f"byte {at}: a number of more than 64 bits")
    return (value >> 1) ^ -(value & 1), at


def _walk_null(_data: bytes, at: int, _budget: _Budget) -> int:
    return at


def _walk_boolean(data: bytes, at: int, _budget: _Budget) -> int:
    if data[at] > 1:
        raise DecodeError(f"byte {at}: {data[at]} is no boolean")
    return at + 1


def _walk_int(data: bytes, at: int, _budget: _Budget) -> int:
    value, end = read_long(data, at)
    if not _INT_MIN <= value <= _INT_MAX:
        raise DecodeError(f"byte {at}: {value} does not fit an int of 32 bits")
    return end


def _walk_long(data: bytes, at: int, _budget: _Budget) -> int:
    return read_long(data, at)[1]


def _walk_bytes(data: bytes, at: int, _budget: _Budget) -> int:
    length, start = read_long(data, at)
    if not 0 <= length <= len(data) - start:
        raise DecodeError(f"byte {at}: a length of {length}, but {len(data) - start} bytes are left")
    return start + length


def _walk_string(data: bytes, at: int, budget: _Budget) -> int:
    end = _walk_bytes(data, at, budget)
    _, start = read_long(data, at)
    try:
        data[start:end].decode()
    except UnicodeDecodeError:
        raise DecodeError(f"byte {at}: a string that is not UTF-8") from None
    return end


def _fixed(size: int) -> _Walk:
    def walk(data: bytes, at: int, _budget: _Budget) -> int:
        if size > len(data) - at:
            raise DecodeError(f"byte {at}: {size} bytes are needed, {len(data) - at} are left")
        return at + size

    return walk


def _index(what: str, count: int, data: bytes, at: int) -> tuple[int, int]:
    index, end = read_long(data, at)
    if not 0 <= index < count:
        raise DecodeError(f"byte {at}: {what} index {index}, there are {count}")
    return index, end


_PRIMITIVES: dict[str, _Walk] = {
    "null": _walk_null,
    "boolean": _walk_boolean,
    "int": _walk_int,
    "long": _walk_long,
    "bytes": _walk_bytes,
    "string": _walk_string,
    "float": _fixed(4),
    "double": _fixed(8),
}


class _Compiler:
    def __init__(self, named: Mapping[str, Any]) -> None:
        self._named = named
        self._compiled: dict[str, _Walk] = {}

    def walk(self, schema: Schema) -> _Walk:
        if isinstance(schema, str):
            return _PRIMITIVES.get(schema) or self._by_name(schema)
        if isinstance(schema, list):
            return self._union(schema)
        kind = schema["type"]
        if kind in ("record", "error"):
            return self._by_name(schema["name"], schema)
        if kind == "array":
            return self._blocks(self.walk(schema["items"]), keyed=False)
        if kind == "map":
            return self._blocks(self.walk(schema["values"]), keyed=True)
        if kind == "enum":
            count = len(schema["symbols"])
            return lambda data, at, _budget: _index("enum", count, data, at)[1]
        if kind == "fixed":
            return _fixed(schema["size"])
        return self.walk(kind)

    def _by_name(self, name: str, schema: dict[str, Any] | None = None) -> _Walk:
        """A named type, bound late: a record may contain itself."""
        definition: dict[str, Any] = self._named[name] if schema is None else schema
        if definition["type"] not in ("record", "error"):
            return self.walk(definition)
        if name not in self._compiled:
            self._compiled[name] = lambda data, at, budget: self._compiled[name](data, at, budget)
            self._compiled[name] = self._record(definition)
            return self._compiled[name]
        return lambda data, at, budget: self._compiled[name](data, at, budget)

    def _record(self, schema: Mapping[str, Any]) -> _Walk:
        walks = tuple(self.walk(field["type"]) for field in schema["fields"])

        def walk(data: bytes, at: int, budget: _Budget) -> int:
            _enter(budget, at)
            start = at
            for field in walks:
                at = field(data, at, budget)
            budget.depth += 1
            if at - start < len(walks):
                _charge(budget, len(walks) - (at - start), at)
            return at

        return walk

    def _union(self, branches: list[Any]) -> _Walk:
        walks = tuple(self.walk(branch) for branch in branches)

        def walk(data: bytes, at: int, budget: _Budget) -> int:
            index, at = _index("union", len(walks), data, at)
            return walks[index](data, at, budget)

        return walk

    def _blocks(self, item: _Walk, *, keyed: bool) -> _Walk:
        """Arrays and maps: blocks of items, each with a count, or a negative count and its size in bytes."""

        def walk(data: bytes, at: int, budget: _Budget) -> int:
            _enter(budget, at)
            while True:
                count, start = read_long(data, at)
                if count == 0:
                    budget.depth += 1
                    return start
                end = None
                if count < 0:
                    count = -count
                    size, start = read_long(data, start)
                    end = start + size
                at = _items(data, start, budget, count, item, keyed)
                if end is not None and at != end:
                    raise DecodeError(f"byte {at}: the block's items end here, but its size says byte {end}")

        return walk


def _enter(budget: _Budget, at: int) -> None:
    budget.depth -= 1
    if budget.depth < 0:
        raise DecodeError(f"byte {at}: nested more than {MAX_DEPTH} deep")


def _charge(budget: _Budget, values: int, at: int) -> None:
    budget.empty_values -= values
    if budget.empty_values < 0:
        raise DecodeError(f"byte {at}: more than {MAX_EMPTY_VALUES} values that take no space")


def _items(data: bytes, at: int, budget: _Budget, count: int, item: _Walk, keyed: bool) -> int:
    for _ in range(count):
        if keyed:
            at = _walk_string(data, at, budget)
        after = item(data, at, budget)
        if after == at and not keyed:
            _charge(budget, 1, at)
        at = after
    return at
