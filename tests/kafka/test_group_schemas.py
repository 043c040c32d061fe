"""An old consumer and a newer producer: the writer schema travels in the log."""

import contextlib
import io
import json
from collections.abc import Callable
from typing import Any

import fastavro
import psycopg
from kafka.conftest import await_effects, uploaded

from offsetzero.consumers.context import Context
from offsetzero.consumers.group import ConsumerGroup
from offsetzero.producers.log import LogProducer
from offsetzero.retry import dead_letters
from offsetzero.schemas import avro, cloudevents, writer
from offsetzero.schemas.codec import MARKER
from offsetzero.schemas.documents import DocumentUploaded
from offsetzero.schemas.metadata import Metadata
from offsetzero.settings import Settings
from offsetzero.topics.names import Names
from offsetzero.topics.schema_log import SchemaLog

Running = Callable[..., contextlib.AbstractContextManager[Any]]


def newer() -> writer.AvroSchema:
    """Version 2 of `document.uploaded`, as a service that this process knows nothing of declares it."""
    schema = json.loads(writer.of(avro.schema_of(DocumentUploaded)).text)
    schema["fields"].append({"name": "pages", "type": "int", "default": 0})
    return writer.load(json.dumps(schema))


def test_an_old_consumer_reads_what_a_newer_producer_wrote(
    settings: Settings, running: Running, database: psycopg.Connection
) -> None:
    audit = ConsumerGroup("audit", topics=["documents"])

    @audit.handler(DocumentUploaded)
    def note(event: DocumentUploaded, ctx: Context) -> None:
        ctx.connection.execute(
            "INSERT INTO effects (document_id, note, attempt) VALUES (%s, %s, %s)",
            (event.document_id, event.name, ctx.attempt),
        )

    names = Names(settings.kafka.namespace)
    schema, event = newer(), uploaded(name="from version 2")
    payload = io.BytesIO()
    fields = {**event.model_dump(), "pages": 7}
    fastavro.schemaless_writer(payload, schema.parsed, fields)
    with LogProducer(settings) as producer:
        producer.produce(
            names.topic("documents"),
            key=event.key,
            value=MARKER + bytes.fromhex(schema.fingerprint) + payload.getvalue(),
            headers=cloudevents.to_headers(
                Metadata(id="v2", source="/newer", type="document.uploaded"), cloudevents.AVRO
            ),
        ).result(10)
    log = SchemaLog(settings)
    log.publish([schema])
    log.close()
    with running(audit):
        assert [row[1:] for row in await_effects(database, 1)] == [("from version 2", 1)]
    assert list(dead_letters.read(settings, "audit")) == []
