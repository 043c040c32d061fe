"""The indexer's projection: chunks of text in a full-text index, and the search over them."""

import html
from collections.abc import Sequence
from dataclasses import dataclass
from uuid import UUID

from offsetzero.store.script import Script

# Marks around a hit while PostgreSQL makes the snippet; from the private use area, which no stored text has.
_START, _STOP = "\ue000", "\ue001"
_HEADLINE = f"StartSel={_START}, StopSel={_STOP}, MaxFragments=2, MaxWords=28, MinWords=12, FragmentDelimiter= … "


@dataclass(frozen=True, slots=True)
class Hit:
    """A document that matches, by its best chunk.

    `snippet` is HTML: the text is escaped, the words that match are inside `<mark>`.
    """

    document_id: UUID
    name: str
    page: int
    rank: float
    snippet: str


def put(
    document_id: UUID, tenant_id: str, name: str, pages: int, chunks: Sequence[tuple[int, int, str]]
) -> Script[bool]:
    """Index a document, in place of what was indexed of it before.

    Args:
        chunks: number, page and text of each; clean, and short enough for a tsvector.

    Returns:
        False when the document was removed: an upload handled late does not bring it back.
    """
    rows = yield (
        "INSERT INTO indexed_documents AS d (document_id, tenant_id, name, pages) VALUES (%s, %s, %s, %s) "
        "ON CONFLICT (document_id) DO UPDATE SET name = excluded.name, pages = excluded.pages, "
        "indexed_at = now() WHERE d.removed_at IS NULL RETURNING 1",
        (document_id, tenant_id, name, pages),
    )
    if not rows:
        return False
    yield "DELETE FROM chunks WHERE document_id = %s", (document_id,)
    yield (
        "INSERT INTO chunks (document_id, tenant_id, number, page, text) "
        "SELECT %s, %s, * FROM unnest(%s::int[], %s::int[], %s::text[])",
        (document_id, tenant_id, *([chunk[i] for chunk in chunks] for i in range(3))),
    )
    return True


def remove(document_id: UUID, tenant_id: str) -> Script[None]:
    """Remove a document for ever: a row without text stays, to know a late upload by."""
    yield (
        "INSERT INTO indexed_documents AS d (document_id, tenant_id, name, pages, removed_at) "
        "VALUES (%s, %s, '', 0, now()) "
        "ON CONFLICT (document_id) DO UPDATE SET name = '', removed_at = coalesce(d.removed_at, now())",
        (document_id, tenant_id),
    )
    yield "DELETE FROM chunks WHERE document_id = %s", (document_id,)


def is_removed(document_id: UUID) -> Script[bool]:
    """Whether the document was removed here."""
    rows = yield (
        "SELECT 1 FROM indexed_documents WHERE document_id = %s AND removed_at IS NOT NULL",
        (document_id,),
    )
    return bool(rows)


def search(tenant_id: str, query: str, *, limit: int, offset: int = 0) -> Script[list[Hit]]:
    """A tenant's documents that match, best first, each by its best chunk.

    Args:
        query: words, `"phrases"`, `or`, `-not` (PostgreSQL's `websearch_to_tsquery`), cleaned like the text.
    """
    rows = yield (
        "WITH q AS (SELECT websearch_to_tsquery('simple', translate(%s, '<>', '  ')) AS query), "
        "hits AS (SELECT DISTINCT ON (c.document_id) c.document_id, c.number, "
        "  ts_rank_cd(c.words, q.query, 32) AS rank FROM chunks c, q "
        "  WHERE c.tenant_id = %s AND c.words @@ q.query ORDER BY c.document_id, rank DESC, c.number), "
        "best AS (SELECT * FROM hits ORDER BY rank DESC, document_id LIMIT %s OFFSET %s) "
        "SELECT b.document_id, d.name, c.page, b.rank, "
        "  ts_headline('simple', translate(c.text, '<>', '  '), q.query, %s) "
        "FROM best b JOIN chunks c USING (document_id, number) "
        "JOIN indexed_documents d USING (document_id), q ORDER BY b.rank DESC, b.document_id",
        (query, tenant_id, limit, offset, _HEADLINE),
    )
    return [Hit(document_id, name, page, rank, _marked(text)) for document_id, name, page, rank, text in rows]


def _marked(headline: str) -> str:
    text = " ".join(html.escape(headline).split())
    return text.replace(_START, "<mark>").replace(_STOP, "</mark>")
