"""Rows of the outbox; what they mean and who makes them: `offsetzero.producers.outbox`."""

from dataclasses import dataclass
from uuid import UUID

from offsetzero.store.script import Script


@dataclass(frozen=True, slots=True)
class OutboxRow:
    """An event that is to be published. `headers` is a JSON object."""

    id: UUID
    aggregatetype: str
    aggregateid: str | None
    type: str
    payload: bytes | None
    topic: str
    headers: str


def insert(row: OutboxRow) -> Script[UUID]:
    """Have it published once the caller's transaction commits; returns the event id."""
    yield (
        "INSERT INTO outbox (id, aggregatetype, aggregateid, type, payload, topic, headers)"
        " VALUES (%s, %s, %s, %s, %s, %s, %s::jsonb)",
        (row.id, row.aggregatetype, row.aggregateid, row.type, row.payload, row.topic, row.headers),
    )
    return row.id
