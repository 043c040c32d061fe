"""A reader of Avro for each writer schema: plain Python, generated once, which refuses all but exactly one datum.

It gives the values as they are on the wire: an enum as its symbol, a record as the tuple of its values, logical types
as what they stand on. One function is generated for each record, array, map and larger union; the rest stands in
line, because most of what a reader costs in Python is calls (`benchmarks/schemas/reading.py`).
"""

import itertools
import struct
from collections.abc import Callable, Mapping
from typing import Any, TypeAlias

from offsetzero.schemas import wire
from offsetzero.schemas.avro import Schema

Read: TypeAlias = Callable[[bytes, int], tuple[Any, ...]]

_GLOBALS = {
    **vars(wire),
    "float": struct.Struct("<f").unpack_from,
    "double": struct.Struct("<d").unpack_from,
}
# How a value is read in line: from `d` at `p`, up to `end`, into {v}. A byte below 0x80 is a whole varint; a length of
# two bytes, up to 8,191, stands in line too.
_NUMBER = """\
n = d[p]
if n > 127: {v}, p = read_{kind}(d, p)
else:
    p += 1
    {v} = n >> 1 ^ -(n & 1)"""
_SPAN = """\
n = d[p]
p += 1
if n & 129:
    if n & 1 or (m := d[p]) > 127: p, q = span(d, p - 1)
    else:
        p += 1
        q = p + ((n + (m << 7) - 128) >> 1)
else: q = p + (n >> 1)
if q > end: too_long(p, q - p, end)"""
_FIXED = """\
q = p + {size}
if q > end: too_few(p, {size}, end)
{v} = {value}
p = q"""
_INDEX = """\
n = d[p]
if n & 1 or n >= {limit}: n, p = index(d, p, "{what}", {count})
else:
    p += 1
    n >>= 1"""
_DEEPER = ["depth += 1", f"if depth > {wire.MAX_DEPTH}: too_deep(p)"]
_BLOCK = """\
count, p = read_long(d, p)
if not count: return found, p
sized = count < 0
if sized:
    size, p = read_long(d, p)
    stop, count = p + size, -count
for _ in range(count):"""
_PRIMITIVES = {
    "null": "{v} = None",
    "boolean": "n = d[p]\nif n > 1: no_boolean(d, p)\n{v} = n == 1\np += 1",
    "int": _NUMBER.replace("{kind}", "int"),
    "long": _NUMBER.replace("{kind}", "long"),
    "bytes": _SPAN + "\n{v} = d[p:q]\np = q",
    "string": _SPAN + "\n{v} = d[p:q].decode()\np = q",
    "float": _FIXED.replace("{size}", "4").replace("{value}", "float(d, p)[0]"),
    "double": _FIXED.replace("{size}", "8").replace("{value}", "double(d, p)[0]"),
}


def compile_read(schema: Schema, named: Mapping[str, Any]) -> Read:
    """A function `read(data, start)` that reads `data[start:]`, which must be exactly one datum of the schema.

    Args:
        schema: of a record, parsed by fastavro, so that all names are full.
        named: the named types of the schema, by full name.

    Returns:
        The function; it returns the values of the record in the order of its fields.

    Raises:
        DecodeError: by the returned function, saying at which byte what is wrong.
    """
    return _Generator(named).compile(schema)


class _Generator:
    """Writes the source of one reader.

    No text of a schema gets into it, only positions, sizes and counts: a writer schema may be anybody's.
    """

    def __init__(self, named: Mapping[str, Any]) -> None:
        self._named = named
        self._globals = dict(_GLOBALS)
        self._functions: list[str] = []
        self._numbers = itertools.count()
        self._records: dict[str, str] = {}
        self._enums: dict[str, str] = {}
        self._empty: dict[str, bool] = {}

    def compile(self, schema: Any) -> Read:
        lines, values = self._fields(schema)
        budget = (
            f"depth, left, start = 1, [{wire.MAX_EMPTY_VALUES}], p" if any("left" in line for line in lines) else "pass"
        )
        source = [
            "def read(d, p):",
            "    end = len(d)",
            f"    {budget}",
            *_guarded([*lines, "if p != end: ended(d, p)", f"return {values}"]),
            "    except IndexError: raise cut_off(d) from None",
        ]
        exec("\n".join([*self._functions, *source]), self._globals)  # noqa: S102 - see the class
        read: Read = self._globals["read"]
        return read

    def _value(self, schema: Any, into: str) -> list[str]:
        """Lines that read a value into a variable."""
        if isinstance(schema, list):
            return self._union(schema, into)
        if isinstance(schema, str):
            lines = _PRIMITIVES.get(schema)
            return lines.format(v=into).splitlines() if lines else self._value(self._named[schema], into)
        kind = schema["type"]
        if kind in ("record", "error"):
            return _call(self._record(schema), into)
        if kind in ("array", "map"):
            return _call(self._blocks(schema), into)
        if kind == "enum":
            return [*_index_of("enum", len(schema["symbols"])), f"{into} = {self._symbols(schema)}[n]"]
        if kind == "fixed":
            return _FIXED.format(v=into, size=int(schema["size"]), value="d[p:q]").splitlines()
        return self._value(kind, into)

    def _fields(self, schema: Any) -> tuple[list[str], str]:
        """Lines that read the fields of a record, and the tuple of what they have read."""
        kinds = [field["type"] for field in schema["fields"]]
        lines = [line for number, kind in enumerate(kinds) for line in self._value(kind, f"v{number}")]
        empty = [self._may_be_empty(kind) for kind in kinds]
        self._empty[schema["name"]] = all(empty)
        if any(empty):
            lines.append(f"if p - start < {len(kinds)}: charge(left, {len(kinds)} - (p - start), p)")
        return lines, f"({''.join(f'v{number}, ' for number in range(len(kinds)))})"

    def _record(self, schema: Any) -> str:
        name = self._records.get(schema["name"])
        if name is None:  # known before it is written: a record may contain itself
            name = self._records[schema["name"]] = self._name()
            lines, values = self._fields(schema)
            self._function(name, [*_DEEPER, "start = p", *lines, f"return {values}, p"])
        return name

    def _union(self, branches: list[Any], into: str) -> list[str]:
        index = _index_of("union", len(branches))
        if len(branches) == 2 and "null" in branches:
            other = 1 - branches.index("null")
            return [*index, f"if n != {other}: {into} = None", "else:", *_indented(self._value(branches[other], into))]
        names = [self._function(self._name(), [*self._value(kind, "v"), "return v, p"]) for kind in branches]
        return [*index, *_call(f"({', '.join(names)},)[n]", into)]

    def _blocks(self, schema: Any) -> str:
        """Arrays and maps: blocks of items, each with a count, or a negative count and its size in bytes."""
        if schema["type"] == "map":
            empty, item = "{}", [*self._value("string", "key"), *self._value(schema["values"], "found[key]")]
        else:
            empty, item = "[]", [*self._value(schema["items"], "v"), "found.append(v)"]
            if self._may_be_empty(schema["items"]):
                item = ["at = p", *item, "if p == at: charge(left, 1, p)"]
        body = [*_DEEPER, f"found = {empty}", "while True:"]
        body += [
            *_indented(_BLOCK.splitlines()),
            *_indented(_indented(item)),
            "    if sized and p != stop: misfit(p, stop)",
        ]
        return self._function(self._name(), body)

    def _symbols(self, schema: Any) -> str:
        name = self._enums.setdefault(schema["name"], f"symbols{len(self._enums)}")
        self._globals[name] = schema["symbols"]
        return name

    def _may_be_empty(self, schema: Schema) -> bool:
        """Whether a value may take no byte; asked after the lines that read it were written."""
        if isinstance(schema, list):
            return False
        if isinstance(schema, str):
            return schema == "null" or (schema not in _PRIMITIVES and self._may_be_empty(self._named[schema]))
        kind = schema["type"]
        if kind in ("record", "error"):
            return self._empty.get(schema["name"], True)  # it contains itself: then the reader counts
        if kind == "fixed":
            return bool(schema["size"] == 0)
        return kind not in ("array", "map", "enum") and self._may_be_empty(kind)

    def _name(self) -> str:
        return f"f{next(self._numbers)}"

    def _function(self, name: str, body: list[str]) -> str:
        self._functions += [f"def {name}(d, p, end, depth, left):", *_guarded(body)]
        return name


def _index_of(what: str, count: int) -> list[str]:
    return _INDEX.format(what=what, count=count, limit=min(2 * count, 128)).splitlines()


def _call(function: str, into: str) -> list[str]:
    return [f"{into}, p = {function}(d, p, end, depth, left)"]


def _guarded(body: list[str]) -> list[str]:
    """The body of a function; only here `p` is known, where a text begins that is none."""
    return ["    try:", *_indented(_indented(body)), "    except UnicodeDecodeError: raise no_text(p) from None"]


def _indented(lines: list[str]) -> list[str]:
    return ["    " + line for line in lines]
