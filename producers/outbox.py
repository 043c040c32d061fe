"""The transactional outbox: an event becomes a row in the caller's transaction, and the relay publishes it.

The table follows Debezium's outbox event router, with what our relay needs besides. What an INSERT of plain SQL gives,
and what it leaves out, is in docs/services.md.

    id            uuid primary key          the event id; default a new UUIDv7
    aggregatetype text not null             the entity: `document` of `document.uploaded`
    aggregateid   text                      the record key
    type          text not null             the event type
    payload       bytea                     the record value, or the event as JSON; null is a tombstone
    topic         text                      our name of the topic, without namespace; null: where events of the type go
    headers       jsonb not null            record headers by name; `oz_schema` is for the relay alone
    created_at    timestamptz not null      default now()
    published_at  timestamptz               null until the broker has acknowledged it
    number        bigint, generated         the order of rows of one key
    shard         smallint, generated       by hash of the key: which relay publishes it
    attempts, error, parked_at              how often and why it could not be published, and since when nobody tries

An insert notifies the channel `offsetzero_outbox`.
"""

import json
import sys
from dataclasses import asdict
from typing import TYPE_CHECKING, Any, TypeAlias, Unpack
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

if TYPE_CHECKING:
    from sqlalchemy import Connection as AlchemyConnection
    from sqlalchemy.ext.asyncio import AsyncConnection as AlchemyAsyncConnection
    from sqlalchemy.ext.asyncio import AsyncSession
    from sqlalchemy.orm import Session

SyncConnection: TypeAlias = "psycopg.Connection[Any] | AlchemyConnection | Session"
AsyncConnection: TypeAlias = "psycopg.AsyncConnection[Any] | AlchemyAsyncConnection | AsyncSession"

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


def add(connection: SyncConnection, event: Event, **attributes: Unpack[Attributes]) -> UUID:
    """`record` on a sync connection.

    Args:
        connection: of psycopg, or a `Connection` or `Session` of SQLAlchemy, with whatever driver; in your transaction.
        event: its key field decides the partition.
        attributes: see `Attributes`.

    Returns:
        The event id.

    Raises:
        TypeError: the connection is none of these; for an async one there is `add_async`.
        InvalidEvent, TopicError: as `record`.
    """
    if isinstance(connection, psycopg.Connection):
        return run(connection, record(event, **attributes))
    alchemy = sys.modules.get("sqlalchemy.orm")
    kinds = (sys.modules["sqlalchemy"].Connection, alchemy.Session, alchemy.scoped_session) if alchemy else ()
    if not isinstance(connection, kinds):
        raise TypeError(_no_connection(connection, "add", "sync"))
    made = row(event, **attributes)
    connection.execute(_alchemy_insert(made))
    return made.id


async def add_async(connection: AsyncConnection, event: Event, **attributes: Unpack[Attributes]) -> UUID:
    """`add` on an async connection: of psycopg, or an `AsyncConnection` or `AsyncSession` of SQLAlchemy."""
    if isinstance(connection, psycopg.AsyncConnection):
        return await arun(connection, record(event, **attributes))
    alchemy = sys.modules.get("sqlalchemy.ext.asyncio")
    kinds = (alchemy.AsyncConnection, alchemy.AsyncSession, alchemy.async_scoped_session) if alchemy else ()
    if not isinstance(connection, kinds):
        raise TypeError(_no_connection(connection, "add_async", "async"))
    made = row(event, **attributes)
    await connection.execute(_alchemy_insert(made))
    return made.id


def _no_connection(given: object, function: str, kind: str) -> str:
    return (
        f"outbox.{function}: a {kind} connection of psycopg is needed, or a {kind} Connection or Session of "
        f"SQLAlchemy, not {type(given).__module__}.{type(given).__qualname__}"
    )


def _alchemy_insert(made: OutboxRow) -> Any:
    """The same row for SQLAlchemy, whose drivers write parameters in different ways."""
    from offsetzero.store import tables

    values = {**asdict(made), "headers": json.loads(made.headers)}
    return tables.outbox.insert().inline().values(values)


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
