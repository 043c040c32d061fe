"""Rows of the outbox: written, looked at, let go again; what they mean is in `offsetzero.producers.outbox`."""

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any, NamedTuple
from uuid import UUID

from offsetzero.store.script import Script

CHANNEL = "offsetzero_outbox"
"""Notified by an insert, by a trigger, and by `retry` and `discard`."""
SHARDS = 32
"""Parts that relays share among themselves; the column `shard` is made for as many."""


@dataclass(frozen=True, slots=True)
class OutboxRow:
    """An event that is to be published. `headers` is a JSON object; without a topic it goes where its type does."""

    id: UUID
    aggregatetype: str
    aggregateid: str | None
    type: str
    payload: bytes | None
    topic: str | None
    headers: str


class Troubled(NamedTuple):
    """A row that could not be published. `parked_at` is None while the relay goes on trying it."""

    id: UUID
    type: str
    key: str | None
    topic: str | None
    created_at: datetime
    parked_at: datetime | None
    attempts: int
    error: str
    behind: int
    """Rows of its key that wait for it."""


class Stored(NamedTuple):
    """All that the table has of a row that is not published."""

    id: UUID
    aggregatetype: str
    aggregateid: str | None
    type: str
    topic: str | None
    payload: bytes | None
    headers: Mapping[str, Any]
    created_at: datetime
    attempts: int
    error: str | None
    parked_at: datetime | None


class Discarded(NamedTuple):
    """A row that an operator took out, and when it was written."""

    id: UUID
    type: str
    aggregatetype: str
    aggregateid: str | None
    topic: str | None
    created_at: datetime
    who: str
    why: str
    at: datetime


_STORED = ", ".join(Stored._fields)
_NOTIFY = f"SELECT pg_notify('{CHANNEL}', '')"
_TROUBLED = """
SELECT t.id, t.type, t.aggregateid, t.topic, t.created_at, t.parked_at, t.attempts, t.error, (
    SELECT count(*) FROM outbox b WHERE b.published_at IS NULL AND b.parked_at IS NULL
    AND b.shard = t.shard AND b.aggregateid = t.aggregateid AND b.id <> t.id)
FROM outbox t WHERE t.error IS NOT NULL AND t.published_at IS NULL
ORDER BY t.number LIMIT %s
"""


def insert(row: OutboxRow) -> Script[UUID]:
    """Have it published once the caller's transaction commits; returns the event id."""
    yield (
        "INSERT INTO outbox (id, aggregatetype, aggregateid, type, payload, topic, headers)"
        " VALUES (%s, %s, %s, %s, %s, %s, %s::jsonb)",
        (row.id, row.aggregatetype, row.aggregateid, row.type, row.payload, row.topic, row.headers),
    )
    return row.id


def troubled(most: int) -> Script[list[Troubled]]:
    """The rows that are parked, or were refused and are tried again, in the order of the table; so many at most."""
    rows = yield _TROUBLED, (most,)
    return [Troubled(*columns) for columns in rows]


def find(event_id: UUID) -> Script[Stored | None]:
    """A row that is not published; None when there is none of that id."""
    rows = yield f"SELECT {_STORED} FROM outbox WHERE id = %s AND published_at IS NULL", (event_id,)  # noqa: S608
    return Stored(*rows[0]) if rows else None


def retry(event_ids: list[UUID] | None) -> Script[list[UUID]]:
    """Have parked rows tried again, once the caller's transaction commits.

    Args:
        event_ids: which; None means all.

    Returns:
        The ids of those that were parked.
    """
    rows = yield (
        "UPDATE outbox SET parked_at = NULL, error = NULL, attempts = 0 WHERE error IS NOT NULL"
        " AND published_at IS NULL AND parked_at IS NOT NULL AND (%s::uuid[] IS NULL OR id = ANY (%s)) RETURNING id",
        (event_ids, event_ids),
    )
    yield _NOTIFY, ()
    return [row[0] for row in rows]


def discard(event_id: UUID, who: str, why: str) -> Script[Stored | None]:
    """Take a parked row out for good: its event is not published, and the rows of its key go on.

    Args:
        event_id: the row.
        who: the operator, for the audit.
        why: the reason, too.

    Returns:
        All that there was of it; None when no row of that id is parked.
    """
    rows = yield (
        f"DELETE FROM outbox WHERE id = %s AND parked_at IS NOT NULL AND published_at IS NULL RETURNING {_STORED}",  # noqa: S608
        (event_id,),
    )
    if not rows:
        return None
    gone = Stored(*rows[0])
    yield (
        "INSERT INTO outbox_discards (id, type, aggregatetype, aggregateid, topic, created_at, who, why)"
        " VALUES (%s, %s, %s, %s, %s, %s, %s, %s)",
        (gone.id, gone.type, gone.aggregatetype, gone.aggregateid, gone.topic, gone.created_at, who, why),
    )
    yield _NOTIFY, ()
    return gone


def discards() -> Script[list[Discarded]]:
    """All rows that operators took out, the oldest first."""
    rows = yield f"SELECT {', '.join(Discarded._fields)} FROM outbox_discards ORDER BY at, id", ()  # noqa: S608
    return [Discarded(*row) for row in rows]
