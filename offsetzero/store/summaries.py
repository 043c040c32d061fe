"""The summariser's projection: one summary a document."""

from dataclasses import dataclass
from datetime import datetime
from uuid import UUID

from offsetzero.store.script import Script


@dataclass(frozen=True, slots=True)
class StoredSummary:
    """A summary, the model that made it, and what it cost in tokens, where known."""

    text: str
    model: str
    input_tokens: int | None
    output_tokens: int | None
    estimated_tokens: int | None
    created_at: datetime


def put(
    document_id: UUID,
    tenant_id: str,
    text: str,
    model: str,
    *,
    input_tokens: int | None = None,
    output_tokens: int | None = None,
    estimated_tokens: int | None = None,
) -> Script[bool]:
    """Store a summary in place of the one before.

    Returns:
        False when the document was removed: an upload handled late does not bring it back.
    """
    rows = yield (
        "INSERT INTO summaries AS s (document_id, tenant_id, text, model, input_tokens, output_tokens, "
        "estimated_tokens) VALUES (%s, %s, %s, %s, %s, %s, %s) ON CONFLICT (document_id) DO UPDATE SET "
        "text = excluded.text, model = excluded.model, input_tokens = excluded.input_tokens, "
        "output_tokens = excluded.output_tokens, estimated_tokens = excluded.estimated_tokens, created_at = now() "
        "WHERE s.removed_at IS NULL RETURNING 1",
        (document_id, tenant_id, text, model, input_tokens, output_tokens, estimated_tokens),
    )
    return bool(rows)


def remove(document_id: UUID, tenant_id: str) -> Script[None]:
    """Remove a summary for ever: a row without text stays, to know a late upload by."""
    yield (
        "INSERT INTO summaries AS s (document_id, tenant_id, text, model, removed_at) "
        "VALUES (%s, %s, '', '', now()) "
        "ON CONFLICT (document_id) DO UPDATE SET text = '', removed_at = coalesce(s.removed_at, now())",
        (document_id, tenant_id),
    )


def is_removed(document_id: UUID) -> Script[bool]:
    """Whether the document was removed here."""
    rows = yield (
        "SELECT 1 FROM summaries WHERE document_id = %s AND removed_at IS NOT NULL",
        (document_id,),
    )
    return bool(rows)


def find(tenant_id: str, document_id: UUID) -> Script[StoredSummary | None]:
    """The summary of a tenant's document, once it is there."""
    rows = yield (
        "SELECT text, model, input_tokens, output_tokens, estimated_tokens, created_at FROM summaries "
        "WHERE document_id = %s AND tenant_id = %s AND removed_at IS NULL",
        (document_id, tenant_id),
    )
    return StoredSummary(*rows[0]) if rows else None
