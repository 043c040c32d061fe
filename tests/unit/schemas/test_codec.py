# ruff: noqa: RUF012  # pydantic copies mutable defaults
"""The codec: round trip, evolution, and every trap of fastavro that design section 4 lists."""

import enum
import io
import json
import struct
import threading
from datetime import UTC, date, datetime, timedelta, timezone
from typing import Any
from uuid import UUID

import pytest
from fastavro import schemaless_reader, schemaless_writer
from fastavro.schema import fingerprint, parse_schema, to_parsing_canonical_form
from hypothesis import given
from hypothesis import strategies as st

from offsetzero.errors import DecodeError, InvalidEvent, SchemasUnavailable, UnknownSchema
from offsetzero.schemas import avro, frozen
from offsetzero.schemas.codec import MARKER, Codec, fingerprint_of
from offsetzero.schemas.documents import DocumentDeleted, DocumentUploaded
from offsetzero.schemas.event import Event, EventPart, event_types


class Colour(enum.StrEnum):
    UNKNOWN = "unknown"
    RED = "red"


class Part(EventPart):
    name: str
    weight: float | None = None


class Everything(Event, type="test.everything", key="id"):
    id: UUID
    at: datetime
    day: date
    count: int
    ratio: float
    flag: bool
    raw: bytes
    text: str
    colour: Colour
    maybe: str | None = None
    numbers: list[int] = []
    names: dict[str, str] = {}
    part: Part
    parts: list[Part] = []
    maybe_part: Part | None = None


_utf8 = st.text(st.characters(exclude_categories=("Cs",)))
_parts = st.builds(Part, name=_utf8, weight=st.none() | st.floats(allow_nan=False))
_millis = st.integers(-62_135_596_800_000, 253_402_300_799_999)
_events = st.builds(
    Everything,
    id=st.uuids(),
    at=_millis.map(lambda millis: datetime(1970, 1, 1, tzinfo=UTC) + timedelta(milliseconds=millis)),
    day=st.dates(),
    count=st.integers(-(2**63), 2**63 - 1),
    ratio=st.floats(allow_nan=False),
    flag=st.booleans(),
    raw=st.binary(),
    text=_utf8,
    colour=st.sampled_from(Colour),
    maybe=st.none() | _utf8,
    numbers=st.lists(st.integers(-(2**63), 2**63 - 1)),
    names=st.dictionaries(_utf8, _utf8),
    part=_parts,
    parts=st.lists(_parts),
    maybe_part=st.none() | _parts,
)
CODEC = Codec()


def _everything(**changes: Any) -> Everything:
    fields: dict[str, Any] = {
        "id": UUID(int=7),
        "at": datetime(2026, 1, 31, tzinfo=UTC),
        "day": date(2026, 1, 31),
        "count": 1,
        "ratio": 0.5,
        "flag": True,
        "raw": b"\x00\xff",
        "text": "ü",
        "colour": Colour.RED,
        "part": Part(name="a"),
    }
    return Everything(**{**fields, **changes})


def _deleted(**changes: Any) -> DocumentDeleted:
    fields = {"document_id": UUID(int=1), "tenant_id": "t", "deleted_at": datetime(2026, 1, 31, tzinfo=UTC)}
    return DocumentDeleted(**{**fields, **changes})


def _written_by(schema: dict[str, Any], body: bytes) -> tuple[Codec, bytes]:
    """A codec that finds a writer schema, and a payload that claims to be written by it."""
    printed = fingerprint(to_parsing_canonical_form(parse_schema(schema)), "CRC-64-AVRO")
    known = {printed: json.dumps(schema)}
    return Codec(known.get), MARKER + bytes.fromhex(printed) + body


def _record(fields: list[dict[str, Any]], name: str = "Anything") -> dict[str, Any]:
    return {"type": "record", "name": name, "namespace": "offsetzero.events", "fields": fields}


def _of(kind: Any) -> dict[str, Any]:
    return _record([{"name": "a", "type": kind}])


# --- round trip ------------------------------------------------------------------------------------


@given(_events)
def test_every_event_comes_back_as_it_was(event: Everything) -> None:
    payload = CODEC.encode(event)
    assert CODEC.decode("test.everything", payload) == event
    assert CODEC.knows("test.everything", payload)
    assert CODEC.decode_fields(payload)["id"] == event.id


def test_the_wire_form_is_single_object_encoding_that_plain_fastavro_reads_by_the_contract() -> None:
    """The independent reader knows only the contract file."""
    contract = json.loads((frozen.DIRECTORY / "document.deleted" / "v1.avsc").read_text())
    payload = CODEC.encode(_deleted())
    assert payload[:2] == b"\xc3\x01"
    printed = fingerprint(to_parsing_canonical_form(parse_schema(contract)), "CRC-64-AVRO")
    assert payload[2:10].hex() == printed == fingerprint_of(payload)
    # Avro 1.12: the eight bytes are little-endian; fastavro's text is in that order already.
    assert struct.unpack("<Q", payload[2:10])[0] == int.from_bytes(bytes.fromhex(printed), "little")
    assert schemaless_reader(io.BytesIO(payload[10:]), contract) == {
        "document_id": UUID(int=1),
        "tenant_id": "t",
        "deleted_at": datetime(2026, 1, 31, tzinfo=UTC),
    }


def test_the_fingerprint_is_that_of_apaches_published_case() -> None:
    """Avro's shared schema tests: "int" has the CRC-64-AVRO fingerprint 7275d51a3f395c8f, most significant first."""
    assert bytes.fromhex(fingerprint('"int"', "CRC-64-AVRO"))[::-1].hex() == "7275d51a3f395c8f"


@pytest.mark.parametrize("event_type", sorted(event_types()))
def test_every_event_type_has_a_schema(event_type: str) -> None:
    assert CODEC.schema(event_types()[event_type]).name.startswith("offsetzero.")


# --- times -----------------------------------------------------------------------------------------


def test_a_naive_datetime_is_refused_and_not_taken_for_local_time() -> None:
    naive = datetime(2026, 1, 31)  # noqa: DTZ001
    with pytest.raises(ValueError, match=r"deleted_at.*no time zone"):
        _deleted(deleted_at=naive)
    with pytest.raises(InvalidEvent, match=r"document\.deleted: deleted_at.*no time zone"):
        CODEC.encode(_deleted().model_copy(update={"deleted_at": naive}))


def test_times_of_any_zone_come_back_in_utc_cut_to_milliseconds() -> None:
    at = datetime(2026, 1, 31, 12, 0, 0, 123_999, tzinfo=timezone(timedelta(hours=-5)))
    event = CODEC.decode("document.deleted", CODEC.encode(_deleted(deleted_at=at)))
    assert isinstance(event, DocumentDeleted)
    assert event.deleted_at == datetime(2026, 1, 31, 17, 0, 0, 123_000, tzinfo=UTC)
    assert event.deleted_at.tzinfo == UTC


def test_times_before_1970_are_cut_in_the_same_direction() -> None:
    at = datetime(1969, 12, 31, 23, 59, 59, 999_999, tzinfo=UTC)
    event = CODEC.decode("document.deleted", CODEC.encode(_deleted(deleted_at=at)))
    assert isinstance(event, DocumentDeleted)
    assert event.deleted_at == datetime(1969, 12, 31, 23, 59, 59, 999_000, tzinfo=UTC)


@pytest.mark.parametrize(
    "at",
    [
        datetime(9999, 12, 31, 23, tzinfo=timezone(timedelta(hours=-5))),
        datetime(1, 1, 1, tzinfo=timezone(timedelta(hours=5))),
    ],
)
def test_a_time_that_no_reader_could_read_is_not_written(at: datetime) -> None:
    with pytest.raises(InvalidEvent, match="years 1 to 9999"):
        CODEC.encode(_deleted(deleted_at=at))


def test_a_time_that_python_does_not_have_is_poison() -> None:
    body = io.BytesIO()
    schemaless_writer(body, {"type": "long"}, 2**62)
    codec, payload = _written_by(_of({"type": "long", "logicalType": "timestamp-millis"}), body.getvalue())
    with pytest.raises(DecodeError):
        codec.decode_fields(payload)


# --- values that are not of their type -------------------------------------------------------------


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("count", 1.9),
        ("count", True),
        ("count", 2**63),
        ("count", -(2**63) - 1),
        ("count", "1"),
        ("ratio", 1),
        ("ratio", True),
        ("flag", 1),
        ("flag", None),
        ("raw", "text"),
        ("text", b"bytes"),
        ("text", "\ud800"),
        ("id", "not-a-uuid"),
        ("at", 1),
        ("day", datetime(2026, 1, 1, tzinfo=UTC)),
        ("colour", "green"),
        ("numbers", [1.5]),
        ("numbers", (1,)),
        ("names", {1: "a"}),
        ("names", ["a"]),
        ("part", None),
    ],
)
def test_a_value_past_pydantic_is_refused_at_encoding(field: str, value: object) -> None:
    event = _everything().model_copy(update={field: value})
    with pytest.raises(InvalidEvent, match=r"test\.everything"):
        CODEC.encode(event)


def test_the_refusal_names_the_nested_field() -> None:
    event = _everything(parts=[Part(name="a").model_copy(update={"weight": 1})])
    with pytest.raises(InvalidEvent, match=r"test.everything: parts\.weight: a float is needed"):
        CODEC.encode(event)


def test_a_missing_field_is_refused() -> None:
    with pytest.raises(InvalidEvent, match="document_id: missing"):
        CODEC.encode(DocumentDeleted.model_construct(tenant_id="t"))


@pytest.mark.parametrize("value", [True, 1.9, "x"])
def test_pydantic_refuses_what_is_no_int(value: object) -> None:
    with pytest.raises(ValueError, match="count"):
        _everything(count=value)


# --- malformed payloads ----------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("payload", "said"),
    [
        (b"", "empty value"),
        (b"\xc3", "c3"),
        (b"\xc3\x01\x00", "not Avro single-object"),
        (b"\x00\x00\x00\x00\x01abc", "Confluent framing"),
        (b"{}", "7b 7d"),
    ],
)
def test_what_is_not_single_object_encoding_is_refused(payload: bytes, said: str) -> None:
    for read in (CODEC.decode_fields, lambda given: CODEC.decode("document.deleted", given)):
        with pytest.raises(DecodeError, match=said):
            read(payload)
    assert not CODEC.knows("document.deleted", payload)


@pytest.mark.parametrize(
    ("kind", "body", "said"),
    [
        ("string", b"", "ends in the middle"),
        ("string", b"\x0aab", "a length of 5"),
        ("string", b"\x01", "a length of -1"),
        ("string", b"\x02\xff", "not UTF-8"),
        ("long", b"\x02\x02", "1 bytes behind"),
        ("long", b"\x80" * 10 + b"\x01", "more than ten bytes"),
        ("long", b"\xff" * 9 + b"\x7f", "more than 64 bits"),
        ("int", b"\x80\x80\x80\x80\x10", "does not fit an int"),
        ("boolean", b"\x02", "no boolean"),
        ("double", b"\x00" * 7, "8 bytes are needed"),
        (["null", "string"], b"\x01", "union index -1"),
        (["null", "string"], b"\x04", "union index 2"),
        ({"type": "enum", "name": "E", "symbols": ["A", "B"]}, b"\x01", "enum index -1"),
        ({"type": "enum", "name": "E", "symbols": ["A", "B"]}, b"\x04", "enum index 2"),
        ({"type": "fixed", "name": "F", "size": 2**40}, b"ab", "bytes are needed"),
        ({"type": "array", "items": "null"}, b"\x80\x80\x80\x0a\x00", "take no space"),
        ({"type": "array", "items": {"type": "array", "items": "null"}}, b"\x08" + b"\xa0\x9c\x01\x00" * 4, "no space"),
        ({"type": "array", "items": "long"}, b"\x80\x80\x80\x80\x80\x80\x80\x80\x40", "ends in the middle"),
        ({"type": "array", "items": "long"}, b"\x01\x06\x02\x00", "its size says"),
        ({"type": "map", "values": "null"}, b"\x02\x02\xff\x00", "not UTF-8"),
        ({"type": "string", "logicalType": "uuid"}, b"\x02x", "UUID|uuid|hex"),
        ({"type": "bytes", "logicalType": "decimal", "precision": 400, "scale": 2}, b"\x00\x00", "behind"),
    ],
)
def test_malformed_bytes_are_refused_with_the_place(kind: Any, body: bytes, said: str) -> None:
    """fastavro takes several of these for something else, and grows the array of nulls to ten million elements."""
    codec, payload = _written_by(_of(kind), body)
    with pytest.raises(DecodeError, match=said):
        codec.decode_fields(payload)


def test_blocks_with_sizes_are_read_as_java_writes_them() -> None:
    codec, payload = _written_by(_of({"type": "array", "items": "long"}), b"\x03\x04\x02\x04\x02\x06\x00")
    assert codec.decode_fields(payload) == {"a": [1, 2, 3]}


def test_a_payload_that_nests_without_end_is_refused_before_the_decoder_recurses() -> None:
    """fastavro recurses in C as deep as the bytes say."""
    schema = _record([{"name": "next", "type": ["null", "Anything"]}])
    codec, payload = _written_by(schema, b"\x02" * 1_000_000 + b"\x00")
    with pytest.raises(DecodeError, match="nested more than 64"):
        codec.decode_fields(payload)
    codec, payload = _written_by(schema, b"\x02" * 10 + b"\x00")
    assert codec.decode_fields(payload)["next"]["next"]


def test_a_schema_that_doubles_at_each_level_does_not_run_for_ever() -> None:
    """Forty records, each holding the one before twice: 2^40 values in no byte at all."""
    records = [_record([{"name": "n", "type": "null"}], "R0")]
    for level in range(1, 41):
        before = f"offsetzero.events.R{level - 1}"
        records.append(_record([{"name": "a", "type": before}, {"name": "b", "type": before}], f"R{level}"))
    root = _record([{"name": f"f{level}", "type": kind} for level, kind in enumerate(records)], "Root")
    codec, payload = _written_by(root, b"")
    with pytest.raises(DecodeError, match="take no space"):
        codec.decode_fields(payload)


def test_records_of_many_nulls_do_not_fill_the_memory() -> None:
    fields = [{"name": "n", "type": "long"}, *({"name": f"n{number}", "type": "null"} for number in range(200))]
    kind = {"type": "array", "items": _record(fields, "Wide")}
    codec, payload = _written_by(_of(kind), b"\xc8\x01" + b"\x02" * 100 + b"\x00")
    with pytest.raises(DecodeError, match="take no space"):
        codec.decode_fields(payload)
    codec, payload = _written_by(_of(kind), b"\x14" + b"\x02" * 10 + b"\x00")
    assert len(codec.decode_fields(payload)["a"]) == 10


def test_many_values_side_by_side_are_not_deep() -> None:
    event = _everything(parts=[Part(name="a")] * 500)
    assert CODEC.decode("test.everything", CODEC.encode(event)) == event
    lists = {"type": "array", "items": {"type": "array", "items": "long"}}
    codec, payload = _written_by(_of(lists), b"\xe8\x07" + b"\x02\x02\x00" * 500 + b"\x00")
    assert codec.decode_fields(payload) == {"a": [[1]] * 500}


@given(st.binary(max_size=60))
def test_any_bytes_are_an_event_or_a_decode_error(body: bytes) -> None:
    for event_type, model in (("test.everything", Everything), ("document.deleted", DocumentDeleted)):
        header = MARKER + bytes.fromhex(CODEC.schema(model).fingerprint)
        try:
            decoded = CODEC.decode(event_type, header + body)
        except DecodeError:
            continue
        assert CODEC.decode(event_type, CODEC.encode(decoded)) == decoded


@given(_events, st.data())
def test_a_damaged_payload_is_an_event_or_a_decode_error(event: Everything, data: st.DataObject) -> None:
    payload = bytearray(CODEC.encode(event))
    where = data.draw(st.integers(10, len(payload) - 1))
    payload[where] = data.draw(st.integers(0, 255))
    try:
        CODEC.decode("test.everything", bytes(payload))
    except DecodeError:
        return


@given(_events, st.integers(1, 30))
def test_a_cut_payload_is_always_refused(event: Everything, cut: int) -> None:
    payload = CODEC.encode(event)
    with pytest.raises(DecodeError):
        CODEC.decode("test.everything", payload[: max(0, len(payload) - cut)])


# --- writer schemas --------------------------------------------------------------------------------


class V2(Event, type="test.evolved", key="id"):
    id: str
    note: str = "none"
    at: datetime = datetime(2020, 1, 1, 0, 0, 0, 5000, tzinfo=UTC)
    raw: bytes = b"\x00\xff"
    ref: UUID | None = None
    owner: UUID = UUID(int=5)
    day: date = date(2020, 2, 3)
    colour: Colour = Colour.UNKNOWN
    tags: list[str] = ["a"]
    labels: dict[str, str] = {}
    part: Part = Part(name="p")


def _evolved(fields: list[dict[str, Any]], body: bytes) -> tuple[Codec, bytes]:
    return _written_by(_record(fields, name="V2"), body)


def test_missing_fields_get_defaults_of_their_own_type() -> None:
    """fastavro hands defaults out as the JSON has them: a time as an int, bytes as text."""
    codec, payload = _evolved([{"name": "id", "type": "string"}], b"\x02x")
    assert codec.decode("test.evolved", payload) == V2(id="x")


def test_mutable_defaults_are_not_shared_between_events() -> None:
    codec, payload = _evolved([{"name": "id", "type": "string"}], b"\x02x")
    first = codec.decode("test.evolved", payload)
    assert isinstance(first, V2)
    first.tags.append("b")
    first.labels["k"] = "v"
    second = codec.decode("test.evolved", payload)
    assert isinstance(second, V2)
    assert (second.tags, second.labels) == (["a"], {})


def test_fields_of_a_newer_producer_are_ignored() -> None:
    codec, payload = _evolved(
        [{"name": "new", "type": {"type": "array", "items": "long"}}, {"name": "id", "type": "string"}],
        b"\x02\x02\x00\x02x",
    )
    assert codec.decode("test.evolved", payload) == V2(id="x")
    assert codec.decode_fields(payload) == {"new": [1], "id": "x"}


def test_a_symbol_that_was_added_later_becomes_the_default() -> None:
    symbols = {"type": "enum", "name": "Colour", "symbols": ["unknown", "red", "green"], "default": "unknown"}
    codec, payload = _evolved([{"name": "id", "type": "string"}, {"name": "colour", "type": symbols}], b"\x02x\x04")
    event = codec.decode("test.evolved", payload)
    assert isinstance(event, V2)
    assert event.colour is Colour.UNKNOWN


def test_a_field_without_default_that_was_not_written_is_poison() -> None:
    codec, payload = _evolved([{"name": "note", "type": "string"}], b"\x02x")
    with pytest.raises(DecodeError, match="id"):
        codec.decode("test.evolved", payload)


def test_an_unknown_fingerprint_is_asked_for_and_then_known() -> None:
    asked = []
    codec, payload = _evolved([{"name": "id", "type": "string"}], b"\x02x")
    find = codec._find_schema
    assert find is not None
    counting = Codec(lambda printed: (asked.append(printed), find(printed))[1])
    for _ in range(3):
        counting.decode("test.evolved", payload)
    assert asked == [fingerprint_of(payload)]
    with pytest.raises(UnknownSchema, match=fingerprint_of(payload)):
        CODEC.decode("test.evolved", payload)
    with pytest.raises(UnknownSchema):
        Codec(lambda _: None).decode("test.evolved", payload)


def test_an_outage_of_the_schema_log_is_not_poison() -> None:
    """confluent-kafka-python#1334."""

    def away(_: str) -> str | None:
        raise SchemasUnavailable("away")

    _, payload = _evolved([{"name": "id", "type": "string"}], b"\x02x")
    for call in (Codec(away).decode_fields, lambda given: Codec(away).knows("test.evolved", given)):
        with pytest.raises(SchemasUnavailable):
            call(payload)


@pytest.mark.parametrize(
    "text",
    [
        "",
        "{",
        "[]",
        '"string"',
        '{"type": "record"}',
        "[" * 10_000,
        '{"type":"record","name":"A","fields":[]}',
        "x" * 300_000,
    ],
)
def test_a_broken_or_wrong_answer_of_the_schema_log_is_unknown_schema(text: str) -> None:
    with pytest.raises(UnknownSchema):
        Codec(lambda _: text).decode_fields(MARKER + b"\x00" * 8)


def test_a_payload_of_another_event_type_is_refused_although_its_shape_fits() -> None:
    """run.succeeded and run.cancelled have the same fields; only the record's name tells them apart."""
    payload = CODEC.encode(_deleted())
    with pytest.raises(DecodeError, match=r"written as offsetzero\.events\.DocumentDeleted"):
        CODEC.decode("document.uploaded", payload)
    assert CODEC.knows("document.deleted", payload)
    assert not CODEC.knows("document.uploaded", payload)
    assert not CODEC.knows("no.such", payload)


def test_an_event_type_without_model_is_known_when_its_producer_published_the_schema() -> None:
    """A newer producer adds a type to a topic: groups that do not handle it go on, and nothing is dead-lettered."""
    schema = {**_record([{"name": "id", "type": "string"}], name="Renamed"), "eventType": "document.renamed"}
    codec, payload = _written_by(schema, b"\x02x")
    assert codec.knows("document.renamed", payload)
    assert not codec.knows("document.moved", payload)
    assert not CODEC.knows("document.renamed", payload)
    with pytest.raises(DecodeError, match="import its module"):
        codec.decode("document.renamed", payload)


def test_json_data_is_read_by_its_content_type() -> None:
    text = _deleted().model_dump_json().encode()
    for content_type in ("application/json", "application/vnd.x+json; charset=utf-8"):
        assert CODEC.decode("document.deleted", text, content_type) == _deleted()
    for broken in (b"{", b"[]", b'{"document_id": 1}', b"\xff", b"[" * 100_000):
        with pytest.raises(DecodeError, match=r"document\.deleted"):
            CODEC.decode("document.deleted", broken, "application/json")
    with pytest.raises(DecodeError, match="not Avro"):
        CODEC.decode("document.deleted", text, "application/avro")


def test_an_event_type_without_model_is_named() -> None:
    with pytest.raises(DecodeError, match=r"no\.such"):
        CODEC.decode("no.such", CODEC.encode(_deleted()))


def test_values_that_the_model_refuses_are_poison() -> None:
    schema = avro.schema_of(DocumentDeleted)
    schema["fields"][0]["type"] = {"type": "string"}
    codec, payload = _written_by(schema, b"\x02x\x02t\x00")
    with pytest.raises(DecodeError):
        codec.decode("document.deleted", payload)


def test_a_codec_is_shared_by_threads() -> None:
    codec, events, failed = Codec(), [_everything(count=n) for n in range(50)], []

    def work() -> None:
        for event in events:
            if codec.decode("test.everything", codec.encode(event)) != event:
                failed.append(event)

    threads = [threading.Thread(target=work) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert failed == []


def test_the_package_knows_its_frozen_contracts() -> None:
    assert set(frozen.of_package()) == {
        "document.uploaded",
        "document.deleted",
        "group.replay.answered",
        "group.replay.requested",
        "run.succeeded",
        "run.failed",
        "run.cancelled",
    }
    assert CODEC.schema(DocumentUploaded).fingerprint == frozen.of_package()["document.uploaded"][-1].schema.fingerprint
