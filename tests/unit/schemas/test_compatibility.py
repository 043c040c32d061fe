"""FULL_TRANSITIVE compatibility, and that fastavro agrees with the verdicts."""

import io
from typing import Any

import pytest
from fastavro import schemaless_reader, schemaless_writer

from offsetzero.schemas import writer
from offsetzero.schemas.compatibility import full_transitive, unreadable
from offsetzero.schemas.frozen import Contract


def _record(*fields: Any, name: str = "R", aliases: list[str] | None = None) -> writer.AvroSchema:
    schema: dict[str, Any] = {"type": "record", "name": name, "fields": list(fields)}
    if aliases:
        schema["aliases"] = aliases
    return writer.of(schema)


def _a(kind: Any, **more: Any) -> dict[str, Any]:
    return {"name": "a", "type": kind, **more}


def _enum(*symbols: str, default: str | None = None, name: str = "E") -> dict[str, Any]:
    found: dict[str, Any] = {"type": "enum", "name": name, "symbols": list(symbols)}
    return {**found, "default": default} if default else found


B = {"name": "b", "type": "string"}
B_DEFAULT = {**B, "default": "x"}
TIME = {"type": "long", "logicalType": "timestamp-millis"}


@pytest.mark.parametrize(
    ("reader", "written", "said"),
    [
        (_record(_a("long")), _record(_a("long")), None),
        (_record(_a("long"), B_DEFAULT), _record(_a("long")), None),
        (_record(_a("long"), B), _record(_a("long")), r"R\.b: not written"),
        (_record(_a("long")), _record(_a("long"), B), None),
        (_record(B, _a("long")), _record(_a("long"), B), None),
        (_record(_a("long")), _record(_a("int")), None),
        (_record(_a("double")), _record(_a("long")), None),
        (_record(_a("int")), _record(_a("long")), "long cannot be read as int"),
        (_record(_a("string")), _record(_a("bytes")), "bytes cannot be read"),
        (_record(_a("bytes")), _record(_a("string")), "string cannot be read"),
        (_record(_a(["null", "long"])), _record(_a("long")), None),
        (_record(_a("long")), _record(_a(["null", "long"])), "null cannot be read as long"),
        (_record(_a(["null", "long"])), _record(_a(["null", "string"])), "string is none of null, long"),
        (_record(_a({"type": "array", "items": "int"})), _record(_a({"type": "array", "items": "string"})), r"a\[\]"),
        (_record(_a({"type": "map", "values": "int"})), _record(_a({"type": "map", "values": "string"})), r"a\{\}"),
        (_record(_a({"type": "array", "items": "int"})), _record(_a({"type": "map", "values": "int"})), "map cannot"),
        (_record(_a(_enum("A", "B"))), _record(_a(_enum("A"))), None),
        (_record(_a(_enum("A"))), _record(_a(_enum("A", "B"))), "B is unknown"),
        (_record(_a(_enum("A", default="A"))), _record(_a(_enum("A", "B"))), None),
        (_record(_a(_enum("A", name="F"))), _record(_a(_enum("A"))), "is called F"),
        (_record(_a(TIME)), _record(_a("long")), "long became long .timestamp-millis."),
        (_record(_a("long")), _record(_a(TIME)), "became"),
        (_record(_a("long"), name="S"), _record(_a("long")), "is called S"),
        (_record(_a("long"), name="S", aliases=["R"]), _record(_a("long")), None),
        (_record(_a("string", aliases=["b"])), _record(B), None),
        (_record(_a("string", aliases=["b"])), _record(_a("string"), B), "not clear which"),
    ],
)
def test_whether_a_reader_can_read_what_a_writer_wrote(
    reader: writer.AvroSchema, written: writer.AvroSchema, said: str | None
) -> None:
    found = unreadable(reader=reader, writer=written)
    if said is None:
        assert found == []
    else:
        with pytest.raises(AssertionError, match=said):
            assert not found, found


@pytest.mark.parametrize(
    ("reader", "written", "datum"),
    [
        (_record(_a("long"), B_DEFAULT), _record(_a("long")), {"a": 1}),
        (_record(_a("double")), _record(_a("long")), {"a": 1}),
        (_record(_a(["null", "long"])), _record(_a("long")), {"a": 1}),
        (_record(_a(_enum("A", default="A"))), _record(_a(_enum("A", "B"))), {"a": "B"}),
        (_record(_a("string", aliases=["b"])), _record(B), {"b": "x"}),
        (_record(_a("long"), name="S", aliases=["R"]), _record(_a("long")), {"a": 1}),
    ],
)
def test_the_decoder_can_do_what_the_check_allows(
    reader: writer.AvroSchema, written: writer.AvroSchema, datum: Any
) -> None:
    out = io.BytesIO()
    schemaless_writer(out, written.parsed, datum)
    out.seek(0)
    schemaless_reader(out, written.parsed, reader.parsed)


def test_a_record_that_contains_itself_is_compared_once() -> None:
    node = _record(_a("long"), {"name": "next", "type": ["null", "R"]})
    grown = _record(_a("long"), {"name": "next", "type": ["null", "R"]}, B)
    assert unreadable(reader=node, writer=grown) == []
    assert unreadable(reader=grown, writer=node) == ["R.b: not written, and without a default"]


def test_full_transitive_asks_every_version_in_both_directions() -> None:
    first, second = _record(_a("long")), _record(_a("long"), B_DEFAULT)
    contracts = [Contract("r", 1, first), Contract("r", 2, second)]
    assert full_transitive(_record(_a("long"), B_DEFAULT, {"name": "c", "type": "int", "default": 0}), contracts) == []
    # `b` with another type agrees with v1, which has no `b`, and with neither direction of v2.
    problems = full_transitive(_record(_a("long"), {"name": "b", "type": "int", "default": 0}), contracts)
    assert [problem.split(":")[0] for problem in problems] == [
        "the new version cannot read what r v2 wrote",
        "r v2 cannot read what the new version writes",
    ]
    assert len(full_transitive(_record(B), contracts)) == 3
