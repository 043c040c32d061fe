"""The transactional outbox: an event becomes a row in the caller's transaction, and the relay publishes it.

The table follows Debezium's outbox event router, with what our relay needs besides:

    id            uuid primary key          the event id (UUIDv7); rows are published in its order
    aggregatetype text not null             the entity: `document` of `document.uploaded`
    aggregateid   text                      the record key
    type          text not null             the event type
    payload       bytea                     the record value; null is a tombstone
    topic         text not null             our name of the topic, without namespace
    headers       jsonb not null            record headers by name; `oz_schema` is for the relay alone
    created_at    timestamptz not null      default now()
    published_at  timestamptz               null until the broker has acknowledged it

An insert notifies the channel `offsetzero_outbox`.
"""

import json
from typing import Any, Unpack
from uuid import UUID

import psycopg

from offsetzero.errors import InvalidEvent
from offsetzero.producers.records import Attributes, OutgoingRecord, build, build_tombstone
from offsetzero.schemas.codec import Codec
from offsetzero.schemas.event import Event
from offsetzero.store import outbox
from offsetzero.store.outbox import OutboxRow
from offsetzero.store.script import Script, arun, run

SCHEMA_HEADER = "oz_schema"
"""Holds a writer schema that is in no frozen contract, so that the relay can publish it before the event."""
CHANNEL = "offsetzero_outbox"

_codec = Codec()


def record(event: Event, **attributes: Unpack[Attributes]) -> Script[UUID]:
    """Write an event to the outbox; it is published when the caller's transaction commits.

    Encoding happens at once, so what cannot be an event fails here and not in the relay.

    Args:
        event: its key field decides the partition.
        attributes: see `Attributes`; pass `source=settings.source` where the settings are at hand.

    Returns:
        A script that inserts the row and returns the event id.

    Raises:
        InvalidEvent: a value or an attribute that no event may have, or an event id that is no UUID.
        TopicError: no topic is declared for the event's type.
    """
    return outbox.insert(row(event, **attributes))


def tombstone(event_type: str, key: str, **attributes: Unpack[Attributes]) -> Script[UUID]:
    """Write an event without data to the outbox; see `record`."""
    return outbox.insert(_row(build_tombstone(event_type, key, attributes)))


def row(event: Event, **attributes: Unpack[Attributes]) -> OutboxRow:
    """The row that `record` writes, not written."""
    return _row(build(_codec, event, attributes))


def add(connection: psycopg.Connection[Any], event: Event, **attributes: Unpack[Attributes]) -> UUID:
    """`record` on a sync connection; returns the event id."""
    return run(connection, record(event, **attributes))


async def add_async(connection: psycopg.AsyncConnection[Any], event: Event, **attributes: Unpack[Attributes]) -> UUID:
    """`record` on an async connection; returns the event id."""
    return await arun(connection, record(event, **attributes))


def _row(outgoing: OutgoingRecord) -> OutboxRow:
    try:
        event_id = UUID(outgoing.event_id)
    except ValueError:
        raise InvalidEvent(f"event id {outgoing.event_id!r}: the outbox needs a UUID") from None
    headers = {name: value.decode() for name, value in outgoing.headers if value is not None}
    if outgoing.schema is not None:
        headers[SCHEMA_HEADER] = outgoing.schema.text
    return OutboxRow(
        event_id,
        outgoing.event_type.partition(".")[0],
        outgoing.key,
        outgoing.event_type,
        outgoing.value,
        outgoing.topic,
        json.dumps(headers),
    )
