"""The generated readers against fastavro, and against a slow reader that does what Avro's specification says."""

import copy
import io
import itertools
import json
import struct
from collections.abc import Callable
from typing import Any

import pytest
from fastavro import parse_schema, schemaless_reader, schemaless_writer
from hypothesis import given
from hypothesis import strategies as st

from offsetzero.errors import DecodeError
from offsetzero.schemas import wire
from offsetzero.schemas.reader import Read, compile_read


class Refused(Exception):
    """By the slow reader."""


class Slow:
    """Reads one datum as the specification is written, value by value, and refuses everything else."""

    def __init__(self, data: bytes, named: dict[str, Any]) -> None:
        self.data, self.named, self.at = data, named, 0
        self.depth, self.empty = wire.MAX_DEPTH, wire.MAX_EMPTY_VALUES

    def whole(self, schema: Any) -> Any:
        value = self.value(schema)
        self.expect(self.at == len(self.data))
        return value

    def expect(self, fine: bool) -> None:
        if not fine:
            raise Refused

    def take(self, size: int) -> bytes:
        self.expect(0 <= size <= len(self.data) - self.at)
        self.at += size
        return self.data[self.at - size : self.at]

    def long(self, bits: int = 64) -> int:
        value, shift = 0, 0
        while True:
            (byte,) = self.take(1)
            value |= (byte & 0x7F) << shift
            shift += 7
            if byte < 0x80:
                break
            self.expect(shift < 70)
        self.expect(value < 2**64)
        value = value >> 1 if value % 2 == 0 else -(value >> 1) - 1
        self.expect(-(2 ** (bits - 1)) <= value < 2 ** (bits - 1))
        return value

    def index(self, count: int) -> int:
        index = self.long()
        self.expect(0 <= index < count)
        return index

    def text(self) -> str:
        try:
            return self.take(self.long()).decode("utf-8")
        except UnicodeDecodeError:
            raise Refused from None

    def truth(self) -> bool:
        (byte,) = self.take(1)
        self.expect(byte < 2)
        return byte == 1

    def value(self, schema: Any) -> Any:
        plain: dict[str, Callable[[], Any]] = {
            "null": lambda: None,
            "boolean": self.truth,
            "int": lambda: self.long(32),
            "long": self.long,
            "bytes": lambda: self.take(self.long()),
            "string": self.text,
            "float": lambda: struct.unpack("<f", self.take(4))[0],
            "double": lambda: struct.unpack("<d", self.take(8))[0],
        }
        if isinstance(schema, list):
            return self.value(schema[self.index(len(schema))])
        if isinstance(schema, str):
            return plain[schema]() if schema in plain else self.value(self.named[schema])
        match schema["type"]:
            case "record" | "array" | "map" as kind:
                self.depth -= 1
                self.expect(self.depth >= 0)
                found = getattr(self, kind)(schema)
                self.depth += 1
                return found
            case "enum":
                return schema["symbols"][self.index(len(schema["symbols"]))]
            case "fixed":
                return self.take(schema["size"])
            case kind:
                return self.value(kind)

    def record(self, schema: Any) -> dict[str, Any]:
        start = self.at
        found = {field["name"]: self.value(field["type"]) for field in schema["fields"]}
        self.charge(len(found) - (self.at - start))
        return found

    def array(self, schema: Any) -> list[Any]:
        found: list[Any] = []
        self.blocks(lambda: found.append(self.value(schema["items"])), keyed=False)
        return found

    def map(self, schema: Any) -> dict[str, Any]:
        found: dict[str, Any] = {}
        self.blocks(lambda: found.__setitem__(self.text(), self.value(schema["values"])), keyed=True)
        return found

    def blocks(self, item: Callable[[], None], *, keyed: bool) -> None:
        while count := self.long():
            size = self.long() if count < 0 else None
            start = self.at
            for _ in range(abs(count)):
                before = self.at
                item()
                self.charge(0 if keyed or self.at > before else 1)
            self.expect(size is None or self.at == start + size)

    def charge(self, values: int) -> None:
        self.empty -= max(0, values)
        self.expect(self.empty >= 0)


# --- schemas and data of every kind ----------------------------------------------------------------

_longs = st.integers(-(2**63), 2**63 - 1)
_floats = st.floats(width=32, allow_nan=False)
_texts = st.text(st.characters(exclude_categories=("Cs",)), max_size=100)
_PLAIN: dict[str, st.SearchStrategy[Any]] = {
    "null": st.none(),
    "boolean": st.booleans(),
    "int": st.integers(-(2**31), 2**31 - 1),
    "long": _longs,
    "float": _floats,
    "double": st.floats(allow_nan=False),
    "bytes": st.binary(max_size=100),
    "string": _texts,
}


@st.composite
def _schemas(draw: st.DrawFn) -> tuple[Any, st.SearchStrategy[Any]]:
    """A record's schema, and the data that it describes."""
    names: list[tuple[str, st.SearchStrategy[Any]]] = []
    numbers = itertools.count()

    def kind(depth: int) -> tuple[Any, st.SearchStrategy[Any]]:
        nested = ["record", "array", "map", "optional", "union"] if depth else []
        chosen = draw(st.sampled_from([*_PLAIN, "enum", "fixed", "named", *nested]))
        if chosen in _PLAIN:
            return chosen, _PLAIN[chosen]
        if chosen == "named" and names:
            return draw(st.sampled_from(names))
        if chosen == "array":
            items, data = kind(depth - 1)
            return {"type": "array", "items": items}, st.lists(data, max_size=3)
        if chosen == "map":
            values, data = kind(depth - 1)
            return {"type": "map", "values": values}, st.dictionaries(_texts, data, max_size=3)
        if chosen == "optional":
            inner, data = kind(depth - 1)
            if inner == "null" or isinstance(inner, list):
                return inner, data
            return draw(st.sampled_from([["null", inner], [inner, "null"]])), st.none() | data
        if chosen == "union":  # of kinds that fastavro tells apart when it writes
            branches = draw(st.permutations(["null", "boolean", "string", "bytes", "long"]))
            branches = branches[: draw(st.integers(1, 5))]
            return branches, st.one_of([_PLAIN[branch] for branch in branches])
        if chosen == "record":
            return record(depth - 1)
        name = f"N{next(numbers)}"
        if chosen == "fixed":
            size = draw(st.integers(0, 20))
            names.append((name, st.binary(min_size=size, max_size=size)))
            return {"type": "fixed", "name": name, "size": size}, names[-1][1]
        symbols = [f"S{number}" for number in range(draw(st.sampled_from([1, 2, 63, 64, 65, 200])))]
        names.append((name, st.sampled_from(symbols)))
        return {"type": "enum", "name": name, "symbols": symbols}, names[-1][1]

    def record(depth: int) -> tuple[Any, st.SearchStrategy[Any]]:
        name = f"R{next(numbers)}"
        fields = {f"f{number}": kind(depth) for number in range(draw(st.integers(0, 5)))}
        schema = {
            "type": "record",
            "name": name,
            "fields": [{"name": field, "type": inner} for field, (inner, _) in fields.items()],
        }
        data = st.fixed_dictionaries({field: values for field, (_, values) in fields.items()})
        names.append((name, data))
        return schema, data

    return record(3)


def _parsed(schema: Any) -> tuple[Any, dict[str, Any]]:
    named: dict[str, Any] = {}
    return parse_schema(copy.deepcopy(schema), named_schemas=named), named


def _with_names(value: Any, schema: Any, named: dict[str, Any]) -> Any:
    """What a generated reader returns, with records as fastavro has them."""
    if isinstance(schema, str):
        return _with_names(value, named[schema], named) if schema in named else value
    if isinstance(schema, list):
        return value if value is None else _with_names(value, next(kind for kind in schema if kind != "null"), named)
    match schema["type"]:
        case "record":
            pairs = zip(schema["fields"], value, strict=True)
            return {field["name"]: _with_names(item, field["type"], named) for field, item in pairs}
        case "array":
            return [_with_names(item, schema["items"], named) for item in value]
        case "map":
            return {key: _with_names(item, schema["values"], named) for key, item in value.items()}
    return value


@given(_schemas(), st.data())
def test_a_generated_reader_reads_what_fastavro_reads(
    kinds: tuple[Any, st.SearchStrategy[Any]], data: st.DataObject
) -> None:
    schema, named = _parsed(kinds[0])
    out = io.BytesIO()
    schemaless_writer(out, schema, data.draw(kinds[1]))
    payload = out.getvalue()
    expected = schemaless_reader(io.BytesIO(payload), schema, None)
    found = _with_names(compile_read(schema, named)(payload, 0), schema, named)
    assert found == expected
    assert json.dumps(found, default=repr) == json.dumps(expected, default=repr)  # True is not 1, nor 1 a float


@given(_schemas(), st.data())
def test_a_generated_reader_refuses_what_the_specification_does_not_allow(
    kinds: tuple[Any, st.SearchStrategy[Any]], data: st.DataObject
) -> None:
    """Every byte of a payload is damaged in turn."""
    schema, named = _parsed(kinds[0])
    out = io.BytesIO()
    schemaless_writer(out, schema, data.draw(kinds[1]))
    payload = out.getvalue()[:80]
    read = compile_read(schema, named)
    for place in range(len(payload) + 1):
        for damage in _DAMAGES:
            _agree(schema, named, payload[:place] + damage + payload[place + 1 :], read)
        _agree(schema, named, payload[:place], read)
        _agree(schema, named, payload[:place] + b"\x80" + payload[place:], read)


_DAMAGES = [
    b"",
    b"\xff" * 9 + b"\x01",
    b"\x80" * 10,
    *(bytes([byte]) for byte in (0, 1, 2, 3, 4, 126, 127, 128, 129, 255)),
]


def _agree(schema: Any, named: dict[str, Any], payload: bytes, read: Read | None = None) -> None:
    read = read or compile_read(schema, named)
    try:
        expected = Slow(payload, named).whole(schema)
    except Refused:
        with pytest.raises(DecodeError):
            read(payload, 0)
        return
    assert repr(_with_names(read(payload, 0), schema, named)) == repr(expected)  # repr: nan equals nan


@pytest.mark.parametrize("kind", [*_PLAIN, ["null", "string"], ["null", "long", "string"]], ids=str)
@pytest.mark.parametrize("form", ["field", "array", "map"])
def test_every_kind_is_read_as_the_specification_says_at_every_length(kind: Any, form: str) -> None:
    """All payloads of up to three bytes that may matter, with a block's head where the form has one."""
    inner = {"field": kind, "array": {"type": "array", "items": kind}, "map": {"type": "map", "values": kind}}[form]
    fields = [{"name": "a", "type": inner}]
    schema, named = _parsed({"type": "record", "name": "R", "fields": fields})
    read = compile_read(schema, named)
    edges = [bytes([byte]) for byte in (0, 1, 2, 3, 4, 5, 6, 127, 128, 129, 255)]
    heads = {"field": [b""], "array": [b"\x02", b"\x01\x02"], "map": [b"\x02\x00", b"\x01\x04\x00", b"\x02\x02k"]}[form]
    for head, length in itertools.product(heads, range(3 if kind == "null" else 4)):
        for body in itertools.product(edges, repeat=length):
            for tail in [b""] if form == "field" else [b"\x00", b""]:
                _agree(schema, named, head + b"".join(body) + tail, read)


def test_a_record_that_contains_itself_is_read_as_deep_as_allowed() -> None:
    tree = {
        "type": "record",
        "name": "Tree",
        "fields": [
            {"name": "kids", "type": {"type": "array", "items": "Tree"}},
            {"name": "up", "type": ["null", "Tree"]},
        ],
    }
    schema, named = _parsed(tree)
    for levels in range(60, 68):
        _agree(schema, named, b"\x00\x02" * levels + b"\x00\x00")
        _agree(schema, named, b"\x02" * levels + b"\x00\x00" + b"\x00\x00" * levels)


def test_an_enum_of_more_symbols_than_a_byte_can_count() -> None:
    symbols = [f"S{number}" for number in range(300)]
    fields = [{"name": "a", "type": {"type": "enum", "name": "E", "symbols": symbols}}]
    schema, named = _parsed({"type": "record", "name": "R", "fields": fields})
    for index in (0, 1, 63, 64, 65, 127, 128, 299, 300, -1):
        zigzag = (index << 1) ^ (index >> 63)
        _agree(schema, named, bytes([zigzag]) if zigzag < 128 else bytes([zigzag & 0x7F | 0x80, zigzag >> 7]))


def test_names_of_a_schema_never_reach_the_generated_source() -> None:
    """A writer schema comes from whoever may write to the topic of schemas."""
    fields = [{"name": "a", "type": {"type": "enum", "name": "E", "symbols": ["A"]}}]
    schema, named = _parsed({"type": "record", "name": "R", "fields": fields})
    schema["fields"][0]["name"] = "a'); raise SystemExit #"
    schema["fields"][0]["type"]["symbols"][0] = "'''; raise SystemExit #"
    assert compile_read(schema, named)(b"\x00", 0) == ("'''; raise SystemExit #",)
