"""What becomes a record or an outbox row."""

import json
from datetime import UTC, datetime, timedelta
from typing import Any
from uuid import UUID, uuid4

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from offsetzero.errors import InvalidEvent, TopicError
from offsetzero.producers import outbox
from offsetzero.producers.records import Attributes, OutgoingRecord, build, build_tombstone
from offsetzero.schemas import cloudevents
from offsetzero.schemas.codec import Codec
from offsetzero.schemas.documents import DocumentDeleted
from offsetzero.schemas.event import Event
from offsetzero.schemas.ids import time_of
from offsetzero.schemas.metadata import Metadata
from offsetzero.schemas.runs import RunFailed
from offsetzero.store.script import Script
from offsetzero.topics import catalogue
from offsetzero.topics.catalogue import Topic

CODEC = Codec()
DELETED = DocumentDeleted(document_id=UUID(int=1), tenant_id="acme", deleted_at=datetime(2026, 1, 1, tzinfo=UTC))


class OwnEvent(Event, type="own.event", key="name"):
    name: str


def _statement(script: Script[UUID]) -> tuple[Any, ...]:
    _, parameters = next(script)
    with pytest.raises(StopIteration) as stop:
        script.send([])
    return (*parameters, stop.value.value)


def _meta(record: OutgoingRecord) -> Metadata:
    return cloudevents.read(record.value, record.headers).meta


def test_a_record_has_the_events_key_topic_and_attributes() -> None:
    record = build(CODEC, DELETED, {})
    assert (record.topic, record.key, record.schema) == ("documents", str(UUID(int=1)), None)
    meta = cloudevents.read(record.value, record.headers).meta
    assert (meta.type, meta.subject, meta.tenant_id) == ("document.deleted", record.key, "acme")
    assert meta.dataschema == f"urn:offsetzero:schema:{CODEC.schema(DocumentDeleted).fingerprint}"
    assert abs((time_of(UUID(meta.id)) - datetime.now(UTC)).total_seconds()) < 60
    assert record.value is not None
    assert CODEC.decode("document.deleted", record.value) == DELETED


def test_a_run_id_comes_from_the_event_and_what_is_given_wins() -> None:
    run, other = uuid4(), uuid4()
    event = RunFailed(
        run_id=run,
        tenant_id="t",
        document_id=uuid4(),
        step="indexer",
        reason="corrupt",
        detail="",
        finished_at=datetime.now(UTC),
    )
    assert _meta(build(CODEC, event, {})).run_id == str(run)
    meta = _meta(build(CODEC, event, {"run_id": other, "tenant_id": "u", "event_id": other, "sequence": 0}))
    assert (meta.run_id, meta.tenant_id, meta.id, meta.sequence) == (str(other), "u", str(other), 0)


class Whose(Event, type="whose.event", key="name"):
    """Each attribute that an event can give may be there or not, and hold anything."""

    name: str
    tenant_id: str | None
    run_id: str | None


_ATTRIBUTE = st.one_of(st.none(), st.text(max_size=5), st.just("a\nb"), st.just("\ud800"))


@given(name=st.text(max_size=5), tenant=_ATTRIBUTE, run=_ATTRIBUTE, source=st.text(max_size=5))
@example(name="\ufffe", tenant="", run=None, source="\x7f")
def test_the_short_way_to_headers_gives_and_refuses_what_the_long_way_does(
    name: str, tenant: str | None, run: str | None, source: str
) -> None:
    event = Whose.model_construct(name=name, tenant_id=tenant, run_id=run)

    def outcome(attributes: Attributes) -> object:
        try:
            record = build(CODEC, event, attributes)
        except InvalidEvent as error:
            return str(error)
        meta = _meta(record)
        assert meta.id == record.event_id
        assert meta.time is not None
        assert abs(meta.time - time_of(UUID(meta.id))) < timedelta(seconds=5)
        # A header that occurs twice would be seen by no reader of ours.
        return sorted(header for header in record.headers if header[0] not in ("ce_id", "ce_time"))

    with catalogue.declared_for(Topic("whose", event_types=("whose.event",))):
        assert outcome({"source": source}) == outcome({"source": source, "sequence": None})


def test_an_attribute_may_be_computed_by_the_event() -> None:
    class Computed(Event, type="computed.event", key="name"):
        name: str

        @property
        def tenant_id(self) -> str:
            return f"of {self.name}"

    with catalogue.declared_for(Topic("computed", event_types=("computed.event",))):
        assert _meta(build(CODEC, Computed(name="n"), {})).tenant_id == "of n"


def test_a_tombstone_has_no_value_and_no_content_type() -> None:
    record = build_tombstone("document.deleted", "k", {"bulk": True})
    assert (record.topic, record.key, record.value) == ("documents.bulk", "k", None)
    message = cloudevents.read(None, record.headers)
    assert (message.content_type, message.meta.subject) == (None, "k")


def test_the_schema_of_an_event_that_is_in_no_contract_travels_with_it() -> None:
    with catalogue.declared_for(Topic("own", event_types=("own.event",))):
        schema = build(CODEC, OwnEvent(name="n"), {}).schema
        assert schema is not None
        headers = json.loads(_statement(outbox.record(OwnEvent(name="n")))[6])
        assert headers[outbox.SCHEMA_HEADER] == schema.text
    assert outbox.SCHEMA_HEADER not in json.loads(_statement(outbox.record(DELETED))[6])
    with pytest.raises(TopicError, match=r"own\.event"):
        build(CODEC, OwnEvent(name="n"), {})


def test_an_event_without_type_is_refused() -> None:
    class Untyped(Event):
        a: int

    with pytest.raises(InvalidEvent, match="Untyped has no event type"):
        build(CODEC, Untyped(a=1), {})


def test_an_outbox_row_has_debeziums_columns_and_the_event_id() -> None:
    event_id = uuid4()
    row = _statement(outbox.record(DELETED, event_id=event_id, source="/s"))
    assert row[0] == row[7] == event_id
    assert row[1:4] == ("document", str(UUID(int=1)), "document.deleted")
    assert row[5] == "documents"
    headers = json.loads(row[6])
    assert (headers["ce_id"], headers["ce_source"], headers["content-type"]) == (
        str(event_id),
        "/s",
        "application/avro",
    )


def test_what_cannot_be_an_event_fails_before_the_transaction_is_touched() -> None:
    with pytest.raises(InvalidEvent, match="needs a UUID"):
        outbox.record(DELETED, event_id="x")
    with pytest.raises(InvalidEvent, match="no time zone"):
        outbox.record(DELETED.model_copy(update={"deleted_at": datetime(2026, 1, 1)}))  # noqa: DTZ001
    with pytest.raises(InvalidEvent, match="tenantid"):
        outbox.record(DELETED, tenant_id="a\nb")
    with pytest.raises(InvalidEvent, match="needs a UUID"):
        outbox.tombstone("document.deleted", "k", event_id="x")
