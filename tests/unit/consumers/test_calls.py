"""What a record turns out to be before any handler is called."""

import pytest
from hypothesis import given
from hypothesis import strategies as st
from structlog.testing import capture_logs

from offsetzero import logs
from offsetzero.clock import SYSTEM
from offsetzero.consumers.group import ConsumerGroup
from offsetzero.consumers.record import OwnedPartition, Record
from offsetzero.consumers.working.calls import CallReader
from offsetzero.errors import SchemasUnavailable
from offsetzero.retry.failures import FailureClass
from offsetzero.schemas import cloudevents
from offsetzero.schemas.codec import Codec
from offsetzero.schemas.documents import DocumentDeleted, DocumentUploaded
from offsetzero.schemas.metadata import Metadata
from offsetzero.store.processed import RAW_SOURCE

CLOUDEVENTS_JSON = b"application/cloudevents+json"
GROUP = ConsumerGroup("audit")
GROUP.handler(DocumentUploaded)(lambda event, ctx: None)
DELETED = DocumentDeleted(document_id="0190b3f0-0000-7000-8000-000000000000", tenant_id="a", deleted_at=SYSTEM.now())  # type: ignore[arg-type]


def unavailable(_fingerprint: str) -> str | None:
    raise SchemasUnavailable("the broker is away")


def record(value: bytes | None, event_type: str, topic: str = "documents") -> Record:
    headers = cloudevents.to_headers(Metadata(id="1", source="/s", type=event_type), cloudevents.AVRO)
    return Record(OwnedPartition(topic, "topic-id", 2), 7, b"k", value, headers, 99)


def with_headers(one: Record, headers: list[tuple[str, bytes | None]]) -> Record:
    return Record(one.owned, one.offset, one.key, one.value, headers, one.timestamp_ms)


def reader(codec: Codec | None = None) -> CallReader:
    return CallReader(GROUP, codec or Codec(), frozenset({"audit.retry-1m"}))


def test_an_outage_of_the_schemas_says_nothing_about_the_event() -> None:
    """confluent-kafka-python#1334: an outage of the registry skipped messages."""
    with pytest.raises(SchemasUnavailable):
        reader(Codec(unavailable)).read(record(b"\xc3\x01" + b"\x07" * 12, "document.uploaded"))
    with pytest.raises(SchemasUnavailable):
        reader(Codec(unavailable)).read(record(b"\xc3\x01" + b"\x07" * 12, "document.exploded"))


def test_a_known_type_without_a_handler_is_nobodys_call() -> None:
    call = reader().read(record(Codec().encode(DELETED), "document.deleted"))
    assert (call.failure, call.route, call.event) == (None, None, None)


def test_an_unknown_type_is_poison_whatever_payload_it_has() -> None:
    call = reader().read(record(Codec().encode(DELETED), "document.exploded"))
    assert call.failure is not None
    assert call.failure.reason == "unknown-type"


def test_what_has_no_event_id_is_known_by_its_place() -> None:
    odd = record(b"x", "document.uploaded")
    odd = with_headers(odd, [])
    call = reader().read(odd)
    assert call.failure is not None
    assert call.failure.failure_class is FailureClass.POISON
    assert (call.identity.source, call.identity.event_id) == (RAW_SOURCE, "topic-id/2/7")


def test_oz_headers_count_only_in_a_retry_topic() -> None:
    """Whoever may write to a source topic could otherwise pretend attempts, origins or redrives."""
    pretended = record(Codec().encode(DELETED), "document.deleted")
    pretended = with_headers(pretended, [*pretended.headers, ("oz_attempt", b"9"), ("oz_redrive_no", b"5")])
    call = reader().read(pretended)
    assert (call.hop.attempt, call.identity.redrive_no) == (1, 0)


def test_a_retry_record_with_broken_headers_is_poison() -> None:
    broken = record(Codec().encode(DELETED), "document.deleted", "audit.retry-1m")
    broken = with_headers(broken, [*broken.headers, ("oz_attempt", b"two")])
    call = reader().read(broken)
    assert call.failure is not None
    assert call.failure.failure_class is FailureClass.POISON


@given(
    value=st.none() | st.binary(max_size=200),
    headers=st.lists(
        st.tuples(
            st.sampled_from(
                ["ce_id", "ce_source", "ce_type", "ce_specversion", "ce_time", "content-type", "oz_attempt"]
            ),
            st.none() | st.binary(max_size=60) | st.sampled_from([b"1.0", b"document.uploaded", CLOUDEVENTS_JSON]),
        ),
        max_size=8,
    ),
    topic=st.sampled_from(["documents", "audit.retry-1m"]),
)
def test_no_record_makes_the_reader_raise(
    value: bytes | None, headers: list[tuple[str, bytes | None]], topic: str
) -> None:
    odd = Record(OwnedPartition(topic, "topic-id", 2), 7, b"k", value, headers, 99)
    call = reader().read(odd)
    assert len(call.identity.event_id) <= 600


def test_a_content_type_that_breaks_the_parser_is_poison() -> None:
    odd = record(b"{}", "document.uploaded")
    odd = with_headers(odd, [("content-type", b"application/cloudevents+json; charset*" + b"1" * 5000 + b"=x")])
    call = reader().read(odd)
    assert call.failure is not None
    assert call.failure.failure_class is FailureClass.POISON


PARENT = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01"


def test_each_handling_is_a_span_of_its_own_in_the_trace_of_its_event() -> None:
    traced = record(Codec().encode(DELETED), "document.deleted")
    traced = with_headers(traced, [*traced.headers, ("traceparent", PARENT.encode()), ("ce_runid", b"r-1")])
    first, second = reader().read(traced), reader().read(traced)
    assert first.span is not None
    assert second.span is not None
    assert first.span is first.span
    assert {first.span.trace_id, second.span.trace_id} == {PARENT[3:35]}
    assert len({first.span.span_id, second.span.span_id, PARENT[36:52]}) == 3
    assert first.cause_of({}, "/s")["traceparent"] == first.span.parent
    assert first.cause_of({"traceparent": "mine"}, "/s")["traceparent"] == "mine"
    assert reader().read(record(Codec().encode(DELETED), "document.deleted")).span is None


def test_a_line_about_one_of_many_says_which() -> None:
    """A batch handler has no one event that it works on: its lines had neither run nor event."""
    call = reader().read(record(Codec().encode(DELETED), "document.deleted"))
    with capture_logs() as lines:
        call.log.info("one of many")
        token = logs.SUBJECT.set(call)
        call.log.info("alone")
        logs.SUBJECT.reset(token)
    many, alone = lines
    assert (many["group"], many["event_id"], many["attempt"]) == ("audit", "1", 1)
    assert "event_id" not in alone, "the logger of the process adds that"
