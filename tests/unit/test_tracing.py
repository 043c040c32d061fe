"""W3C Trace Context, and where it goes: into events, their copies, lines of logs, and calls of other systems."""

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from offsetzero import logs, tracing
from offsetzero.consumers.context import Context, Given, Source
from offsetzero.producers.records import build
from offsetzero.retry import headers as retry_headers
from offsetzero.retry.headers import Hop, Origin
from offsetzero.schemas import cloudevents
from offsetzero.schemas.codec import Codec
from offsetzero.schemas.documents import DocumentDeleted
from offsetzero.schemas.metadata import Metadata, span_of
from offsetzero.settings import Settings
from offsetzero.tracing import Span

TRACE, SPAN = "4bf92f3577b34da6a3ce929d0e0e4736", "00f067aa0ba902b7"
PARENT = f"00-{TRACE}-{SPAN}-01"


def test_the_example_of_the_specification() -> None:
    span = tracing.read(PARENT, "rojo=00f067aa0ba902b7")
    assert span == Span(TRACE, SPAN, "01", "rojo=00f067aa0ba902b7")
    assert span.headers() == {"traceparent": PARENT, "tracestate": "rojo=00f067aa0ba902b7"}
    assert span.next().trace_id == TRACE
    assert span.next().span_id not in (SPAN, span.next().span_id)


@pytest.mark.parametrize(
    "parent",
    [
        None,
        "",
        f"ff-{TRACE}-{SPAN}-01",
        f"00-{'0' * 32}-{SPAN}-01",
        f"00-{TRACE}-{'0' * 16}-01",
        f"00-{TRACE.upper()}-{SPAN}-01",
        f"00-{TRACE}-{SPAN}-01-more",
        f"00-{TRACE}-{SPAN}",
        f"00-{TRACE[1:]}-{SPAN}-01",
        f"0-{TRACE}-{SPAN}-01",
        f"00-{TRACE}-{SPAN}-0x",
    ],
)
def test_what_is_no_trace_is_ignored(parent: str | None) -> None:
    assert tracing.read(parent) is None


def test_a_later_version_is_read_as_far_as_it_is_known() -> None:
    assert tracing.read(f"cc-{TRACE}-{SPAN}-07-what.the.future.holds") == Span(TRACE, SPAN, "00")


@given(st.text(max_size=80), st.text(max_size=600))
def test_whatever_comes_is_no_error_and_what_goes_on_can_be_sent(parent: str, state: str) -> None:
    assert tracing.read(parent, state) is None
    span = tracing.read(PARENT, state)
    assert span is not None
    assert all(value.isascii() and value.isprintable() for value in span.headers().values())


def test_a_trace_that_begins_is_valid_and_claims_no_records() -> None:
    span = tracing.begin()
    assert tracing.read(span.parent) == span
    assert re.fullmatch(r"00-[0-9a-f]{32}-[0-9a-f]{16}-00", span.parent)


def _event() -> DocumentDeleted:
    return DocumentDeleted.model_validate(
        {"document_id": "01981f4e-5d3a-7c11-9b52-3f0f6a1c2d4e", "tenant_id": "a", "deleted_at": "2026-01-31T12:00:00Z"}
    )


class Work:
    """What a thread is at."""

    def __init__(self, span: Span | None) -> None:
        self.span = span

    def log_fields(self) -> dict[str, object]:
        return {"run_id": "r-1"}


def test_an_event_is_of_the_trace_of_the_work_that_makes_it() -> None:
    assert "traceparent" not in dict(build(Codec(), _event(), {}).headers)
    token = logs.SUBJECT.set(Work(Span(TRACE, SPAN, "01", "a=1")))
    try:
        made = dict(build(Codec(), _event(), {"source": "/shop"}).headers)
    finally:
        logs.SUBJECT.reset(token)
    assert (made["traceparent"], made["tracestate"]) == (PARENT.encode(), b"a=1")
    assert (made["ce_traceparent"], made["ce_tracestate"]) == (PARENT.encode(), b"a=1")


def test_a_copy_has_a_span_of_its_own_and_the_event_still_knows_the_first() -> None:
    made = build(Codec(), _event(), {"traceparent": PARENT}).headers
    hop = Hop(Origin("T", "documents", 0, 7))
    copies = [made]
    for _ in range(3):
        copies.append(retry_headers.write(copies[-1], hop, None, "g"))
    spans = [tracing.read((dict(copy)["traceparent"] or b"").decode()) for copy in copies]
    assert {span.trace_id for span in spans if span is not None} == {TRACE}
    assert len({span.span_id for span in spans if span is not None}) == len(copies)
    assert {dict(copy)["ce_traceparent"] for copy in copies} == {PARENT.encode()}
    assert len({retry_headers.size_of(copy) for copy in copies[1:]}) == 1, "headers do not grow"


def test_a_copy_tells_of_the_handling_that_failed() -> None:
    span = Span(TRACE, "b" * 16)
    made = retry_headers.write([("traceparent", PARENT.encode())], Hop(Origin("T", "d", 0, 7)), None, "g", span)
    assert dict(made)["traceparent"] == span.parent.encode()


@pytest.mark.parametrize("value", [None, b"", b"\xff", b"00-0-0-00"])
def test_a_broken_trace_is_copied_as_it_is(value: bytes | None) -> None:
    made = retry_headers.write([("traceparent", value)], Hop(Origin("T", "d", 0, 7)), None, "g")
    assert dict(made)["traceparent"] == value


def test_the_hop_is_believed_before_the_extension_of_the_event() -> None:
    made = build(Codec(), _event(), {"traceparent": PARENT})
    meta = cloudevents.read(made.value, made.headers).meta
    assert span_of(meta) == Span(TRACE, SPAN, "01")
    later = Metadata(id="1", source="/", type="t", traceparent=f"00-{TRACE}-{'c' * 16}-01", extensions=meta.extensions)
    assert span_of(later) == Span(TRACE, "c" * 16, "01")
    no_hop = Metadata(id="1", source="/", type="t", extensions={"traceparent": PARENT})
    assert span_of(no_hop) == Span(TRACE, SPAN, "01")


def test_calls_of_other_systems_bear_the_trace_and_the_run() -> None:
    def headers(**more: str) -> dict[str, str]:
        meta = Metadata(id="1", source="/", type="t", **more)
        return Context(Given(meta, Source("d", 0, 0, b"", 0), 1, "k", logs.get("t")), Settings(), None).trace_headers

    assert headers() == {} == logs.trace_headers()
    token = logs.SUBJECT.set(Work(Span(TRACE, SPAN, "01")))
    assert logs.trace_headers() == {"X-Run-Id": "r-1", "traceparent": PARENT}
    logs.SUBJECT.reset(token)
    assert headers(run_id="r-1") == {"X-Run-Id": "r-1"}
    assert headers(run_id="r-1", traceparent=PARENT) == {"X-Run-Id": "r-1", "traceparent": PARENT}
