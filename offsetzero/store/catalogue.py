"""The projection of the group `catalogue`: each document as its newest event says, and what a tenant has."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any, NamedTuple
from uuid import UUID

from offsetzero.store import arrays
from offsetzero.store.script import Script

# A deleted document keeps a row without what it was called and how large it was, so that an upload that comes late does
# not bring it back. `sequence`, and the place in the log that follows it, say which event the row is of. There are no
# rows of counts: docs/decisions/tenants-are-counted-when-asked.md.
TABLES = """
CREATE TABLE catalogue_documents (
    document_id uuid CONSTRAINT pk_catalogue_documents PRIMARY KEY,
    tenant_id text NOT NULL,
    sequence bigint NOT NULL,
    topic_id text NOT NULL,
    partition integer NOT NULL,
    place bigint NOT NULL,
    name text NOT NULL,
    content_type text NOT NULL,
    size_bytes bigint NOT NULL,
    uploaded_at timestamptz,
    deleted_at timestamptz
);
"""
"""The tables of the catalogue's projection."""
INDEXES = {
    "ix_catalogue_documents_tenant_id": "catalogue_documents (tenant_id, document_id) INCLUDE (size_bytes)"
    " WHERE deleted_at IS NULL"
}
"""That only its readers need: `of_tenant`."""


class Entry(NamedTuple):
    """A document as one event says.

    Attributes:
        sequence: the document's version in that event, 0 when it names none.
        topic_id: where the event was first appended, with `partition` and `place`, its offset.
        uploaded_at: None in an event that deletes it; then it has no name, no type and no size either.
    """

    document_id: UUID
    tenant_id: str
    sequence: int
    topic_id: str
    partition: int
    place: int
    name: str
    content_type: str
    size_bytes: int
    uploaded_at: datetime | None
    deleted_at: datetime | None


@dataclass(frozen=True, slots=True)
class Listed:
    """A document that a tenant has."""

    document_id: UUID
    name: str
    content_type: str
    size_bytes: int
    uploaded_at: datetime


@dataclass(frozen=True, slots=True)
class Catalogue:
    """What a tenant has: how many documents of how many bytes, and some of them."""

    documents: int
    bytes: int
    listed: list[Listed]


_ARRAYS: tuple[Callable[[Any], str], ...] = (
    arrays.uuids,
    arrays.texts,
    arrays.numbers,
    arrays.texts,
    arrays.numbers,
    arrays.numbers,
    arrays.texts,
    arrays.texts,
    arrays.numbers,
    arrays.times,
    arrays.times,
)
_COLUMNS = ", ".join(Entry._fields)
_GIVEN = (
    "unnest(%s::uuid[], %s::text[], %s::bigint[], %s::text[], %s::int[], %s::bigint[], %s::text[], %s::text[],"
    f" %s::bigint[], %s::bigint[], %s::bigint[]) AS e ({_COLUMNS})"
)
_TIMES = ("uploaded_at", "deleted_at")
_VALUES = ", ".join(arrays.time_of(name) if name in _TIMES else name for name in Entry._fields)
_PUT = (
    f"WITH put AS (INSERT INTO catalogue_documents AS d ({_COLUMNS}) SELECT {_VALUES} FROM {_GIVEN}"  # noqa: S608
    " ORDER BY document_id ON CONFLICT (document_id) DO UPDATE SET "
    + ", ".join(f"{name} = excluded.{name}" for name in Entry._fields[1:])
    + " WHERE (excluded.deleted_at IS NOT NULL, excluded.sequence, excluded.place)"
    " > (d.deleted_at IS NOT NULL, d.sequence, d.place) RETURNING 1) SELECT count(*) FROM put"
)
_TIED = (
    "SELECT d.document_id FROM catalogue_documents d"  # noqa: S608
    f" JOIN {_GIVEN} USING (document_id) WHERE d.sequence = e.sequence"
    " AND (d.deleted_at IS NULL) = (e.deleted_at IS NULL)"
    " AND (d.topic_id, d.partition) <> (e.topic_id, e.partition)"
)


def put(entries: Sequence[Entry]) -> Script[list[UUID]]:
    """Write entries of different documents, each unless a newer one is there.

    A deletion is newer than any upload, whatever their order. Otherwise the higher sequence is, and of equal ones the
    place that comes later in the same partition.

    Returns:
        The documents whose entry cannot be told from the one that is there: it is of another partition, with the same
        sequence. Nothing of these is written.
    """
    columns = list(zip(*entries, strict=True))
    given = tuple(array(column) for array, column in zip(_ARRAYS, columns, strict=True))
    rows = yield _PUT, given
    if rows[0][0] == len(entries):
        return []
    return [row[0] for row in (yield _TIED, given)]


def of_tenant(tenant_id: str, *, limit: int, before: UUID | None = None) -> Script[Catalogue]:
    """What a tenant has, with a page of its documents, those with the highest ids first.

    Args:
        tenant_id: whose.
        limit: documents on the page.
        before: the last document of the page before. It means the same in every generation.
    """
    rows = yield (
        "SELECT count(*), coalesce(sum(size_bytes), 0)::bigint FROM catalogue_documents"
        " WHERE tenant_id = %s AND deleted_at IS NULL",
        (tenant_id,),
    )
    listed = yield (
        # Names are not in the log, which is for ever; only who publishes documents of another kind may have them there.
        "SELECT c.document_id, coalesce(d.name, c.name), c.content_type, c.size_bytes, c.uploaded_at"
        " FROM catalogue_documents c LEFT JOIN documents d ON d.id = c.document_id"
        " WHERE c.tenant_id = %s AND c.deleted_at IS NULL AND (%s::uuid IS NULL OR c.document_id < %s)"
        " ORDER BY c.document_id DESC LIMIT %s",
        (tenant_id, before, before, limit),
    )
    ((count, size),) = rows
    return Catalogue(count, size, [Listed(*row) for row in listed])
