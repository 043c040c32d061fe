"""What the Publisher puts on the wire, seen by clients that are not ours: kcat, fastavro, aiokafka."""

import asyncio
import io
import json
import os
import random
import shutil
import subprocess
from datetime import UTC, datetime
from typing import Any
from uuid import UUID, uuid4

import pytest
from aiokafka.partitioner import DefaultPartitioner
from fastavro import schemaless_reader

from offsetzero import Publisher
from offsetzero.errors import PublishError
from offsetzero.producers.log import Delivery, LogProducer
from offsetzero.schemas import frozen
from offsetzero.schemas.codec import Codec
from offsetzero.schemas.documents import DocumentDeleted, DocumentUploaded
from offsetzero.schemas.event import Event
from offsetzero.settings import Settings
from offsetzero.topics import catalogue, cluster
from offsetzero.topics.catalogue import Topic
from offsetzero.topics.names import Names
from offsetzero.topics.schema_log import SchemaLog

WHEN = datetime(2026, 1, 31, 12, 0, 0, 123_456, tzinfo=UTC)


class AuditNoted(Event, type="audit.noted", key="name"):
    name: str
    times: int = 1


@pytest.fixture
def kcat() -> str:
    """The independent client; without it the test is skipped, except in continuous integration."""
    found = shutil.which("kcat") or shutil.which("kafkacat")
    if found is None:
        if os.environ.get("CI") == "true":
            pytest.fail("kcat is not installed, and CI=true: `apt-get install kcat`")
        pytest.skip("kcat is not installed (`apt-get install kcat`)")
    return found


def _uploaded(number: int = 1) -> DocumentUploaded:
    return DocumentUploaded(
        document_id=UUID(int=number),
        tenant_id="acme",
        run_id=UUID(int=2),
        name="größe.pdf",
        content_type="application/pdf",
        uri="file:///x",
        size_bytes=3,
        sha256="00" * 32,
        uploaded_at=WHEN,
    )


def _deleted(document_id: UUID) -> DocumentDeleted:
    return DocumentDeleted(document_id=document_id, tenant_id="t", deleted_at=WHEN)


def _kcat(kcat: str, settings: Settings, topic: str) -> list[dict[str, Any]]:
    name = Names(settings.kafka.namespace).topic(topic)
    found = subprocess.run(
        [kcat, "-C", "-b", settings.kafka.bootstrap_servers, "-t", name, "-o", "beginning", "-e", "-q", "-J"],
        capture_output=True,
        check=True,
        timeout=60,
    )
    # The value is Avro, which kcat's JSON shows byte for byte only as far as it is text.
    return [json.loads(line) for line in found.stdout.decode("utf-8", "replace").splitlines()]


def test_kcat_sees_the_cloudevents_headers_and_the_key(settings: Settings, kcat: str) -> None:
    cluster.ensure(settings, [Topic("documents", 1)])
    event_id = uuid4()
    with Publisher(settings, source="/test") as publisher:
        publisher.publish(_uploaded(), event_id=event_id, sequence=4, correlation_id="c").result(10)
        publisher.tombstone("document.deleted", "gone").result(10)
    uploaded, tombstone = _kcat(kcat, settings, "documents")
    headers = dict(zip(uploaded["headers"][::2], uploaded["headers"][1::2], strict=True))
    assert {name: value for name, value in headers.items() if name not in ("ce_time", "ce_dataschema")} == {
        "ce_specversion": "1.0",
        "ce_id": str(event_id),
        "ce_source": "/test",
        "ce_type": "document.uploaded",
        "ce_subject": str(UUID(int=1)),
        "ce_tenantid": "acme",
        "ce_runid": str(UUID(int=2)),
        "ce_correlationid": "c",
        "ce_sequence": "4",
        "content-type": "application/avro",
    }
    assert headers["ce_time"].endswith("Z")
    assert uploaded["key"] == str(UUID(int=1))
    assert (tombstone["key"], tombstone["payload"]) == ("gone", None)
    assert "content-type" not in tombstone["headers"]


def test_the_value_decodes_with_plain_fastavro_by_the_contract_file(settings: Settings, kcat: str) -> None:
    cluster.ensure(settings, [Topic("documents", 1)])
    with Publisher(settings) as publisher:
        publisher.publish(_uploaded()).result(10)
    name = Names(settings.kafka.namespace).topic("documents")
    raw = subprocess.run(
        [kcat, "-C", "-b", settings.kafka.bootstrap_servers, "-t", name, "-o", "beginning", "-e", "-q", "-f", "%s"],
        capture_output=True,
        check=True,
        timeout=60,
    ).stdout
    contract = json.loads((frozen.DIRECTORY / "document.uploaded" / "v1.avsc").read_text())
    assert raw[:2] == b"\xc3\x01"
    fields = schemaless_reader(io.BytesIO(raw[10:]), contract)
    assert isinstance(fields, dict)
    assert fields["name"] == "größe.pdf"
    assert fields["document_id"] == UUID(int=1)
    assert fields["uploaded_at"] == WHEN.replace(microsecond=123_000)


def test_the_partition_of_a_key_is_that_of_other_kafka_clients(settings: Settings) -> None:
    """librdkafka's default (CRC32) puts most keys elsewhere than Java, Debezium and Faust do."""
    cluster.ensure(settings, [Topic("documents", 6)])
    theirs = DefaultPartitioner()
    partitions = list(range(6))
    dice = random.Random(1)
    ids = [UUID(int=dice.getrandbits(128)) for _ in range(300)]
    with Publisher(settings) as publisher:
        deliveries = [(one, publisher.publish(_deleted(one))) for one in ids]
        publisher.flush()
        ours = {one: delivery.result(0).partition for one, delivery in deliveries}
    assert ours == {one: theirs(str(one).encode(), partitions, partitions) for one in ids}
    assert len(set(ours.values())) == 6


def test_odd_keys_go_where_other_kafka_clients_put_them(settings: Settings) -> None:
    cluster.ensure(settings, [Topic("documents", 6)])
    name = Names(settings.kafka.namespace).topic("documents")
    keys = [b"\xff\xfe", b"x" * 1000, "größe".encode(), b"\0"]
    with LogProducer(settings) as producer:
        for key in keys:
            placed = producer.produce(name, key=key, value=b"").result(10)
            assert placed.partition == DefaultPartitioner()(key, list(range(6)), list(range(6))), key


def test_an_asyncio_service_publishes_and_leaves_with_everything_sent(settings: Settings) -> None:
    cluster.ensure(settings, [Topic("documents", 1)])

    async def service() -> tuple[int, set[int], Delivery]:
        async with Publisher(settings) as publisher:
            first = (await publisher.publish_async(_deleted(uuid4()))).offset
            placed = await asyncio.gather(*(publisher.publish_async(_deleted(uuid4())) for _ in range(300)))
            assert (await publisher.publish(_deleted(uuid4()))).offset == 301
            return first, {one.offset for one in placed}, publisher.publish(_deleted(uuid4()))

    first, others, not_awaited = asyncio.run(service())
    assert (first, others, not_awaited.result(0).offset) == (0, set(range(1, 301)), 302)


def test_an_asyncio_service_publishes_the_schema_of_an_own_event_first(settings: Settings) -> None:
    async def service() -> None:
        async with Publisher(settings) as publisher:
            await asyncio.gather(*(publisher.publish_async(AuditNoted(name=str(n))) for n in range(3)))

    with catalogue.declared_for(Topic("audit", 1, event_types=("audit.noted",))):
        cluster.ensure(settings, [Topic("audit", 1), Topic("schemas", 1, config={"cleanup.policy": "compact"})])
        asyncio.run(service())
    log = SchemaLog(settings)
    assert log.find(Codec().schema(AuditNoted).fingerprint)
    log.close()


def test_the_schema_of_an_own_event_is_in_the_log_before_the_event_and_a_stranger_reads_it(
    settings: Settings,
) -> None:
    with catalogue.declared_for(Topic("audit", 1, event_types=("audit.noted",))):
        cluster.ensure(settings, [Topic("audit", 1), Topic("schemas", 1, config={"cleanup.policy": "compact"})])
        with Publisher(settings) as publisher:
            publisher.publish(AuditNoted(name="a")).result(10)
            publisher.publish(AuditNoted(name="b")).result(10)
    log = SchemaLog(settings)
    assert Codec(log.find).decode_fields(Codec().encode(AuditNoted(name="a", times=3))) == {"name": "a", "times": 3}
    log.close()


def test_publishing_where_nothing_was_applied_says_what_to_do(settings: Settings) -> None:
    with Publisher(settings) as publisher, pytest.raises(PublishError, match="topics apply"):
        publisher.publish(_deleted(uuid4())).result(60)


def test_leaving_the_publisher_sends_everything(settings: Settings) -> None:
    cluster.ensure(settings, [Topic("documents", 1)])
    with Publisher(settings) as publisher:
        deliveries = [publisher.publish(_deleted(uuid4())) for _ in range(500)]
    assert [delivery.result(0).offset for delivery in deliveries] == list(range(500))
