"""The events that every contestant publishes: document.uploaded, nine fields, about 300 bytes of Avro, 1,000 keys."""

import json
import random
from datetime import UTC, datetime, timedelta
from typing import Any
from uuid import UUID

from fastavro import parse_schema

from offsetzero.producers.records import build
from offsetzero.schemas.codec import MARKER, Codec
from offsetzero.schemas.documents import DocumentUploaded

SOURCE = "/benchmark"
KEYS = 1_000
DISTINCT = 20_000
"""Events that differ; more are these again."""
_FIRST = datetime(2026, 1, 1, tzinfo=UTC)


def make(count: int = DISTINCT) -> list[DocumentUploaded]:
    """The same events in each process."""
    dice = random.Random(5)  # noqa: S311
    documents = [UUID(int=dice.getrandbits(128), version=4) for _ in range(KEYS)]
    return [
        DocumentUploaded(
            document_id=documents[number % KEYS],
            tenant_id=f"tenant-{dice.randrange(50):03}",
            run_id=UUID(int=dice.getrandbits(128), version=4),
            name=f"quarterly report {dice.randrange(10**6):06}.pdf",
            content_type="application/pdf",
            uri=f"s3://documents-eu-central-1/{documents[number % KEYS]}/{dice.getrandbits(96):024x}",
            size_bytes=dice.randrange(10**8),
            sha256=f"{dice.getrandbits(256):064x}",
            uploaded_at=_FIRST + timedelta(milliseconds=number),
        )
        for number in range(count)
    ]


def by_hand() -> tuple[Any, bytes, list[tuple[str, bytes]]]:
    """For who does it without Publisher: fastavro's schema, what comes before the datum, and the headers of all."""
    schema = Codec().schema(DocumentUploaded)
    common = [
        ("ce_specversion", b"1.0"),
        ("ce_source", SOURCE.encode()),
        ("ce_type", b"document.uploaded"),
        ("ce_dataschema", f"urn:offsetzero:schema:{schema.fingerprint}".encode()),
        ("content-type", b"application/avro"),
    ]
    return parse_schema(json.loads(schema.text)), MARKER + bytes.fromhex(schema.fingerprint), common


def encode(events: list[DocumentUploaded]) -> list[tuple[str | None, bytes | None, list[tuple[str, bytes | None]]]]:
    """Key, value and headers of each, as Publisher sends them."""
    codec = Codec()
    records = [build(codec, event, {"source": SOURCE}) for event in events]
    return [(record.key, record.value, list(record.headers)) for record in records]
