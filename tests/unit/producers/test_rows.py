"""Rows of the outbox as records: those that are one already, and those of plain SQL."""

import json
from datetime import UTC, datetime
from typing import Any
from uuid import UUID

import pytest

from offsetzero.errors import OffsetzeroError
from offsetzero.producers import outbox
from offsetzero.producers.rows import Row, ready
from offsetzero.schemas import cloudevents
from offsetzero.schemas.codec import Codec
from offsetzero.schemas.documents import DocumentDeleted
from offsetzero.schemas.event import Event
from offsetzero.topics import catalogue
from offsetzero.topics.catalogue import Topic

ID = UUID("01890f4e-0000-7000-8000-000000000001")
KEY = "018f0000-0000-7000-8000-00000000000a"
AT = datetime(2026, 11, 30, 12, 0, 0, 123000, tzinfo=UTC)
JSON = {"document_id": KEY, "tenant_id": "acme", "deleted_at": "2026-11-30T12:00:00Z"}
CODEC = Codec()


def _row(**changes: Any) -> Row:
    row = Row(ID, KEY, "document.deleted", None, json.dumps(JSON).encode(), {}, AT, 0)
    return row._replace(**changes)


def test_json_becomes_the_record_that_the_library_would_have_written() -> None:
    record = ready(_row(headers={"ce_sequence": "7", "traceparent": "00-0-0-00", "x-own": "1"}), CODEC, "/shop")
    event = DocumentDeleted.model_validate_json(json.dumps(JSON))
    assert (record.topic, record.key, record.value) == ("documents", KEY, CODEC.encode(event))
    found = cloudevents.read(record.value, record.headers)
    assert (found.content_type, found.meta.id, found.meta.source) == ("application/avro", str(ID), "/shop")
    assert (found.meta.time, found.meta.sequence, found.meta.tenant_id) == (AT, 7, "acme")
    assert found.meta.subject == KEY
    assert ("x-own", b"1") in record.headers
    by_library = outbox.row(event, source="/shop", event_id=ID, time=AT, sequence=7)
    assert by_library.payload == record.value
    written = json.loads(by_library.headers)
    assert {name: value.decode() for name, value in record.headers if value and name in written} == written


def test_attributes_come_from_headers() -> None:
    headers = {
        "ce_source": "/billing",
        "ce_tenantid": "other",
        "ce_correlationid": "c",
        "ce_time": "2020-01-01T00:00:00Z",
        "ce_colour": "red",
    }
    record = ready(_row(headers=headers), CODEC, "/shop")
    meta = cloudevents.read(record.value, record.headers).meta
    assert (meta.source, meta.tenant_id, meta.correlation_id) == ("/billing", "other", "c")
    assert meta.time == datetime(2020, 1, 1, tzinfo=UTC)
    assert meta.extensions == {"colour": "red"}


def test_a_row_without_payload_is_a_tombstone() -> None:
    record = ready(_row(payload=None), CODEC, "/shop")
    assert (record.topic, record.key, record.value) == ("documents", KEY, None)
    assert cloudevents.read(None, record.headers).meta.id == str(ID)


def test_the_lane_may_be_chosen() -> None:
    assert ready(_row(topic="documents.bulk"), CODEC, "/shop").topic == "documents.bulk"


def test_what_the_library_wrote_goes_as_it_is() -> None:
    made = outbox.row(DocumentDeleted.model_validate_json(json.dumps(JSON)), event_id=ID)
    record = ready(
        _row(topic=made.topic, payload=made.payload, headers=json.loads(made.headers)), CODEC, "not looked at"
    )
    assert (record.topic, record.key, record.value, record.schema) == ("documents", KEY, made.payload, None)
    assert {name: value.decode() for name, value in record.headers if value} == json.loads(made.headers)


def test_the_schema_of_a_users_own_event_goes_before_it() -> None:
    class OwnOrder(Event, type="ownorder.placed", key="number"):
        number: str

    with catalogue.declared_for(Topic("ownorders", event_types=("ownorder.placed",))):
        record = ready(_row(type="ownorder.placed", key="1", payload=b'{"number": "1"}'), CODEC, "/shop")
    schema = CODEC.schema(OwnOrder)
    assert record.schema == (schema.fingerprint, schema.text)


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"headers": []}, "headers: a JSON object"),
        ({"headers": {"ce_sequence": 7}}, "headers: ce_sequence: text is needed"),
        ({"headers": {"ce_sequence": "seven"}}, "ce_sequence: a whole number"),
        ({"headers": {"ce_id": "x"}}, "ce_id: the row's columns say that"),
        ({"headers": {"content-type": "application/avro"}}, "JSON is encoded to Avro"),
        ({"headers": {"ce_specversion": "1.0"}}, "topic: needed"),
        ({"key": None}, "aggregateid: needed"),
        ({"key": "another"}, "aggregateid: 'another' is not the event's document_id"),
        ({"payload": b"no json"}, "document.deleted: payload: Invalid JSON"),
        ({"payload": b'{"document_id": 5}'}, "document.deleted: payload: document_id"),
        ({"type": "nobody.knows"}, "offsetzero relay --module"),
        ({"payload": None, "type": "nobody.knows"}, "no topic is declared"),
    ],
)
def test_a_row_that_can_be_no_record_says_what_it_lacks(changes: dict[str, Any], said: str) -> None:
    with pytest.raises(OffsetzeroError) as caught:
        ready(_row(**changes), CODEC, "/shop")
    assert said in str(caught.value)


def test_rows_of_a_key_share_a_lane_and_rows_without_key_have_their_own() -> None:
    other = UUID(int=2)
    assert _row().lane == _row(id=other, topic="documents.bulk", payload=None).lane
    assert _row(key=None).lane != _row(key=None, id=other).lane
    assert _row(key="").lane != _row(key=None).lane
