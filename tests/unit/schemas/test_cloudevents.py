"""The CloudEvents Kafka binding: what the specification asks for, and what the Python SDK 2.2.0 gets wrong."""

import base64
import contextlib
import dataclasses
import itertools
import json
from datetime import UTC, datetime, timedelta, timezone

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from offsetzero.errors import InvalidEvent
from offsetzero.schemas import attributes, cloudevents, shapes
from offsetzero.schemas.cloudevents import Headers, RawHeaders, glance, is_cloudevent, read, to_headers
from offsetzero.schemas.metadata import Metadata

REQUIRED: Headers = [
    ("ce_specversion", b"1.0"),
    ("ce_id", b"1"),
    ("ce_source", b"/s"),
    ("ce_type", b"a.b"),
]
META = Metadata(id="1", source="/s", type="a.b")
STRUCTURED: Headers = [("content-type", b"application/cloudevents+json; charset=UTF-8")]


def _envelope(**members: object) -> bytes:
    return json.dumps({"specversion": "1.0", "id": "1", "source": "/s", "type": "a.b", **members}).encode()


# --- writing ---------------------------------------------------------------------------------------


def test_headers_are_named_as_the_binding_says() -> None:
    meta = Metadata(
        id="1",
        source="/s",
        type="a.b",
        time=datetime(2026, 1, 31, 12, 0, 0, 120_000, tzinfo=timezone(timedelta(hours=2))),
        subject="ü",
        dataschema="urn:x",
        tenant_id="t",
        run_id="r",
        correlation_id="c",
        causation_id="d",
        sequence=-7,
        traceparent="00-ab-cd-01",
        extensions={"custom": "a b%20c"},
    )
    assert to_headers(meta, "application/avro") == [
        ("ce_specversion", b"1.0"),
        ("ce_id", b"1"),
        ("ce_source", b"/s"),
        ("ce_type", b"a.b"),
        ("ce_subject", "ü".encode()),
        ("ce_dataschema", b"urn:x"),
        ("ce_tenantid", b"t"),
        ("ce_runid", b"r"),
        ("ce_correlationid", b"c"),
        ("ce_causationid", b"d"),
        ("ce_time", b"2026-01-31T10:00:00.120000Z"),
        ("ce_sequence", b"-7"),
        ("ce_custom", b"a b%20c"),
        ("content-type", b"application/avro"),
        ("traceparent", b"00-ab-cd-01"),
    ]


def test_a_tombstone_has_no_content_type() -> None:
    assert "content-type" not in dict(to_headers(META, None))


@pytest.mark.parametrize("bad", ["a\x00b", "a\nb", "\x7f", "\x85", "\ud800", "\ufdd0", "\uffff", "\U0001fffe"])
def test_characters_that_cloudevents_forbids_are_refused(bad: str) -> None:
    with pytest.raises(InvalidEvent, match=r"subject.*U\+"):
        to_headers(Metadata(id="1", source="/s", type="a.b", subject=bad), None)


@pytest.mark.parametrize(
    "meta",
    [
        Metadata(id="", source="/s", type="a.b"),
        Metadata(id="1", source="", type="a.b"),
        Metadata(id="1", source="/s", type=""),
        Metadata(id="1", source="/s", type="a.b", time=datetime(2026, 1, 1)),  # noqa: DTZ001
        Metadata(id="1", source="/s", type="a.b", extensions={"Upper": "x"}),
        Metadata(id="1", source="/s", type="a.b", extensions={"with_line": "x"}),
        Metadata(id="1", source="/s", type="a.b", extensions={"": "x"}),
        Metadata(id="1", source="/s", type="a.b", extensions={"id": "2"}),
        Metadata(id="1", source="/s", type="a.b", extensions={"data": "2"}),
        Metadata(id=7, source="/s", type="a.b"),  # type: ignore[arg-type]
    ],
)
def test_metadata_that_no_event_may_have_is_refused(meta: Metadata) -> None:
    with pytest.raises(InvalidEvent):
        to_headers(meta, None)


_text = st.text(st.characters(exclude_categories=("Cc", "Cs", "Cn")), min_size=1)


@given(
    identity=st.tuples(_text, _text, _text),
    optional=st.lists(st.none() | _text, min_size=6, max_size=6),
    time=st.none() | st.datetimes(datetime(1900, 1, 1), datetime(9000, 1, 1), timezones=st.just(UTC)),  # noqa: DTZ001
    sequence=st.none() | st.integers(-(10**18) + 1, 10**18 - 1),
    extensions=st.dictionaries(st.from_regex(r"x[a-z0-9]{0,19}", fullmatch=True), _text, max_size=4),
    data=st.none() | st.binary(),
)
def test_what_is_written_is_read_back(
    identity: tuple[str, str, str],
    optional: list[str | None],
    time: datetime | None,
    sequence: int | None,
    extensions: dict[str, str],
    data: bytes | None,
) -> None:
    subject, tenant, run, correlation, causation, trace = optional
    meta = Metadata(
        id=identity[0],
        source=identity[1],
        type=identity[2],
        time=time,
        subject=subject,
        tenant_id=tenant,
        run_id=run,
        correlation_id=correlation,
        causation_id=causation,
        sequence=sequence,
        traceparent=trace,
        extensions=extensions,
    )
    content_type = None if data is None else "application/avro"
    message = read(data, to_headers(meta, content_type))
    assert (message.meta, message.content_type, message.data) == (meta, content_type, data)


# --- reading, binary mode --------------------------------------------------------------------------


def test_no_value_in_binary_mode_is_a_tombstone_and_an_empty_value_is_not() -> None:
    """faststream#2932, arroyo: tombstones and empty values were taken for each other."""
    assert read(None, REQUIRED).data is None
    assert read(b"", REQUIRED).data == b""


@pytest.mark.parametrize("missing", ["ce_specversion", "ce_id", "ce_source", "ce_type"])
def test_a_missing_attribute_is_named(missing: str) -> None:
    rest = [header for header in REQUIRED if header[0] != missing]
    for headers in (rest, [*rest, (missing, b"")], [*rest, (missing, None)]):
        with pytest.raises(InvalidEvent, match=missing):
            read(b"x", headers)


def test_a_record_without_headers_is_no_cloudevent() -> None:
    for headers in (None, []):
        assert not is_cloudevent(headers)
        with pytest.raises(InvalidEvent, match="not a CloudEvent"):
            read(b"x", headers)
    assert is_cloudevent(REQUIRED)
    assert is_cloudevent(STRUCTURED)


def test_foreign_headers_may_hold_anything() -> None:
    headers: Headers = [*REQUIRED, ("junk", b"\xff\xfe"), ("none", None), ("", b"x"), ("ce_Bad-Name", b"\xff")]
    assert read(b"x", headers).meta.extensions == {}


def test_an_attribute_that_is_not_utf8_or_has_control_characters_is_invalid() -> None:
    for value in (b"\xff", b"a\x00"):
        with pytest.raises(InvalidEvent, match="ce_subject"):
            read(b"x", [*REQUIRED, ("ce_subject", value)])


def test_a_null_header_is_an_absent_attribute_and_the_last_of_a_name_counts() -> None:
    headers: Headers = [*REQUIRED, ("ce_subject", b"a"), ("ce_subject", b"b"), ("ce_tenantid", None)]
    meta = read(b"x", headers).meta
    assert (meta.subject, meta.tenant_id) == ("b", None)
    assert read(b"x", [*REQUIRED, ("ce_subject", b"a"), ("ce_subject", None)]).meta.subject is None


def test_nothing_is_percent_decoded() -> None:
    assert read(b"x", [*REQUIRED, ("ce_subject", b"100%25 %F0")]).meta.subject == "100%25 %F0"


def test_data_attributes_are_not_taken_from_ce_headers() -> None:
    message = read(b"x", [*REQUIRED, ("ce_datacontenttype", b"text/plain"), ("ce_data", b"y")])
    assert (message.content_type, message.data, message.meta.extensions) == (None, b"x", {})


def test_another_version_of_the_specification_is_refused() -> None:
    with pytest.raises(InvalidEvent, match=r"'0\.3'"):
        read(b"x", [("ce_specversion", b"0.3"), *REQUIRED[1:]])


@pytest.mark.parametrize("text", ["1.0", "", "９", "1" * 19, "0x1", "1_000", " 1"])
def test_a_sequence_is_a_decimal_integer(text: str) -> None:
    headers = [*REQUIRED, ("ce_sequence", text.encode())]
    if text == "":
        assert read(b"x", headers).meta.sequence is None
    else:
        with pytest.raises(InvalidEvent, match="sequence"):
            read(b"x", headers)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("2026-01-31T12:00:00Z", datetime(2026, 1, 31, 12, tzinfo=UTC)),
        ("2026-01-31t12:00:00.5z", datetime(2026, 1, 31, 12, 0, 0, 500_000, tzinfo=UTC)),
        ("2026-01-31T12:00:00.123456789+02:00", datetime(2026, 1, 31, 10, 0, 0, 123_456, tzinfo=UTC)),
        ("2016-12-31T23:59:60Z", datetime(2017, 1, 1, tzinfo=UTC)),
    ],
)
def test_times_are_rfc_3339(text: str, expected: datetime) -> None:
    assert read(b"x", [*REQUIRED, ("ce_time", text.encode())]).meta.time == expected


@pytest.mark.parametrize(
    "text",
    [
        "2026-01-31",
        "2026-01-31T12:00:00",
        "2026-02-30T12:00:00Z",
        "2026-01-31 12:00:00Z",
        "20260131T120000Z",
        "2026-01-31T12:00:00+2",
        "0001-01-01T00:00:00+23:59",
        "1769860800",
    ],
)
def test_other_times_are_refused(text: str) -> None:
    with pytest.raises(InvalidEvent, match="time"):
        read(b"x", [*REQUIRED, ("ce_time", text.encode())])


def test_a_broken_trace_costs_no_event() -> None:
    assert read(b"x", [*REQUIRED, ("traceparent", b"\xff")]).meta.traceparent is None


# --- reading, structured mode ----------------------------------------------------------------------


def test_structured_mode_wins_over_ce_headers_by_content_type() -> None:
    message = read(_envelope(id="inside", data={"a": 1}), [*REQUIRED, *STRUCTURED])
    assert (message.meta.id, message.content_type, message.data) == ("inside", "application/json", b'{"a": 1}')


def test_values_of_structured_attributes_become_their_canonical_text() -> None:
    meta = read(_envelope(flag=True, other=False, number=-7, nothing=None, tenantid="t"), STRUCTURED).meta
    assert meta.extensions == {"flag": "true", "other": "false", "number": "-7"}
    assert meta.tenant_id == "t"


@pytest.mark.parametrize("value", [1.5, 2**31, [1], {"a": 1}])
def test_a_value_that_is_no_attribute_type_is_refused(value: object) -> None:
    with pytest.raises(InvalidEvent, match="attribute custom"):
        read(_envelope(custom=value), STRUCTURED)


def test_structured_data_in_its_forms() -> None:
    binary = base64.b64encode(b"\x00\xff").decode()
    cases: list[tuple[dict[str, object], bytes | None]] = [
        ({}, None),
        ({"data": None}, b"null"),
        ({"data_base64": binary, "datacontenttype": "application/avro"}, b"\x00\xff"),
        ({"data": "ü", "datacontenttype": "text/plain"}, "ü".encode()),
        ({"data": "ü", "datacontenttype": "application/x+json"}, '"ü"'.encode()),
    ]
    for members, expected in cases:
        assert read(_envelope(**members), STRUCTURED).data == expected, members


@pytest.mark.parametrize(
    ("value", "content_type"),
    [
        (b"[]", b"application/cloudevents+json"),
        (b"{", b"application/cloudevents+json"),
        (b"\xff", b"application/cloudevents+json"),
        (b"[" * 100_000, b"application/cloudevents+json"),
        (b'{"specversion": NaN}', b"application/cloudevents+json"),
        (None, b"application/cloudevents+json"),
        (_envelope(data=1, data_base64="AA=="), b"application/cloudevents+json"),
        (_envelope(data_base64="?"), b"application/cloudevents+json"),
        (_envelope(data={}, datacontenttype="application/avro"), b"application/cloudevents+json"),
        (_envelope(datacontenttype=1), b"application/cloudevents+json"),
        (_envelope(), b"application/cloudevents+json; charset=utf-16"),
        (b"[]", b"application/cloudevents-batch+json"),
        (b"x", b"application/cloudevents+avro"),
        (b"x", b"application/cloudevents"),
    ],
)
def test_what_cannot_be_read_as_structured_is_refused(value: bytes | None, content_type: bytes) -> None:
    with pytest.raises(InvalidEvent):
        read(value, [*REQUIRED, ("content-type", content_type)])


def test_avro_in_structured_mode_is_refused_with_the_remedy() -> None:
    with pytest.raises(InvalidEvent, match="use binary mode"):
        read(b"x", [("content-type", b"Application/CloudEvents+AVRO")])


@given(
    st.none() | st.binary(),
    st.lists(
        st.tuples(
            st.sampled_from(["ce_id", "ce_type", "ce_source", "ce_specversion", "ce_time", "content-type", "x"]),
            st.none() | st.binary() | st.just(b"1.0") | st.just(b"application/cloudevents+json"),
        )
    ),
)
def test_any_record_is_read_or_refused_as_invalid(value: bytes | None, headers: Headers) -> None:
    with contextlib.suppress(InvalidEvent):
        read(value, headers)


def test_a_written_time_has_no_other_form() -> None:
    assert attributes.format_time(datetime(2026, 1, 1, tzinfo=UTC)) == "2026-01-01T00:00:00Z"


# --- glancing --------------------------------------------------------------------------------------

_names = st.sampled_from(
    [
        *("ce_specversion", "ce_id", "ce_source", "ce_type", "ce_time", "ce_sequence", "ce_subject", "ce_tenantid"),
        *("ce_runid", "ce_custom", "ce_data", "ce_Bad-Name", "ce_", "ce_datacontenttype", "content-type"),
        *("Content-Type", "CONTENT-TYPE", "traceparent", "tracestate", "x", "", "x\nce_id", "oz_attempt"),
    ]
)
_times = st.datetimes(timezones=st.just(UTC)).map(lambda at: attributes.format_time(at).encode())
_values = st.sampled_from(
    [
        *(None, b"", b"1.0", b"1", b"-7", b"a.b", b"a b", b"a\x7f", b"a\x1f", "ü".encode(), b"\xff", b"0.3"),
        *(
            b"application/avro",
            b"application/cloudevents+json",
            b" Application/CloudEvents+JSON",
            b"2016-12-31T23:59:60Z",
        ),
        *(b"2026-01-31T12:00:00.123456+02:00", b"2026-01-31T12:00:00.1234567Z", b"0000-01-01T00:00:00.000000Z"),
    ]
)


def _same(value: bytes | None, headers: Headers) -> None:
    """A glance finds what reading finds, and refuses what it refuses."""
    try:
        message = read(value, headers)
    except InvalidEvent:
        with pytest.raises(InvalidEvent):
            glance(value, headers)
        return
    seen = glance(value, headers)
    meta = message.meta
    assert (seen.content_type, seen.data) == (message.content_type, message.data)
    for _ in range(2):  # before and after `meta` was made
        assert (seen.id, seen.source, seen.type, seen.tenant_id, seen.run_id) == (
            *(meta.id, meta.source, meta.type, meta.tenant_id, meta.run_id),
        )
        assert seen.meta == meta
    assert seen.meta is seen.meta


@settings(max_examples=500)
@given(
    st.none() | st.sampled_from([b"", b"x", _envelope(data=1)]),
    st.permutations(REQUIRED),
    st.lists(st.tuples(_names, _values | _times | st.binary(max_size=5))),
)
def test_a_glance_finds_and_refuses_what_reading_does(value: bytes | None, required: Headers, more: Headers) -> None:
    _same(value, [*required, *more])
    _same(value, [*more, *required])
    _same(value, more)


def test_a_glance_takes_no_other_form_of_a_time_than_reading_does() -> None:
    """The fast way asks `datetime.fromisoformat`, which reads more forms than RFC 3339 has."""
    text = "2026-01-31T12:34:56.123456Z"
    for place, char in itertools.product(range(len(text)), map(chr, range(0x20, 0x7F))):
        _same(b"x", [*REQUIRED, ("ce_time", (text[:place] + char + text[place + 1 :]).encode())])
    fractions = (
        "",
        "1",
        "1234567890",
        "+02:00",
        "1+02:00",
        "1+0200",
        "+1+0203",
        "Z23456",
        "123Z56",
        "12345 ",
        "1_3456",
    )
    for fraction in fractions:
        _same(b"x", [*REQUIRED, ("ce_time", f"2026-01-31T12:34:56.{fraction}Z".encode())])


def test_a_glance_refuses_before_anybody_asks_for_more() -> None:
    for name, bad in (
        ("ce_time", b"yesterday"),
        ("ce_sequence", b"1.0"),
        ("ce_custom", b"a\x00"),
        ("ce_custom", b"\xff"),
    ):
        with pytest.raises(InvalidEvent):
            glance(b"x", [*REQUIRED, (name, bad)])


def test_a_glance_makes_no_metadata_for_plain_headers(monkeypatch: pytest.MonkeyPatch) -> None:
    """It would cost more than all the rest of an event."""
    headers = to_headers(
        dataclasses.replace(META, time=datetime(2026, 1, 1, 1, 1, 1, 1, tzinfo=UTC)), "application/avro"
    )
    monkeypatch.setattr(cloudevents, "read", None)
    assert glance(b"x", headers).meta.time == datetime(2026, 1, 1, 1, 1, 1, 1, tzinfo=UTC)


@pytest.mark.parametrize("headers", [None, [], (), iter([])])
def test_a_glance_at_no_headers_is_refused(headers: RawHeaders | None) -> None:
    with pytest.raises(InvalidEvent, match="not a CloudEvent"):
        glance(b"x", headers)


def test_headers_may_come_as_any_iterable_and_their_values_as_text() -> None:
    assert glance(b"x", iter(REQUIRED)).meta == META
    assert glance(b"x", tuple(REQUIRED)).meta == META
    assert glance(b"x", [(name, (value or b"").decode()) for name, value in REQUIRED]).meta == META


def test_shapes_of_headers_are_kept_within_a_bound() -> None:
    for number in range(3 * shapes.MAX_SHAPES):
        glance(b"x", [*REQUIRED, (f"x{number}", b"")])
    glance(b"x", [*REQUIRED, ("x" * 10_000, b"")])
    assert len(shapes.KNOWN) <= shapes.MAX_SHAPES
    assert max(map(len, shapes.KNOWN)) <= shapes.MAX_NAMES
