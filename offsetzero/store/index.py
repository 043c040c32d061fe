"""The indexer's projection: chunks of text in a full-text index. What searches it: `offsetzero.store.search`."""

from collections.abc import Sequence
from uuid import UUID

from offsetzero.generation import Generation
from offsetzero.store import generations, wording
from offsetzero.store.languages import SIMPLE, configuration
from offsetzero.store.script import Script

GROUP = "indexer"
"""Whose projection it is."""

# A removed document keeps its row, so that a late upload does not bring it back. `words` is made with the language's
# configuration.
TABLES = """
CREATE TABLE indexed_documents (
    document_id uuid CONSTRAINT pk_indexed_documents PRIMARY KEY,
    tenant_id text NOT NULL,
    name text NOT NULL,
    pages integer NOT NULL,
    indexed_at timestamptz NOT NULL DEFAULT now(),
    removed_at timestamptz,
    language text NOT NULL DEFAULT 'simple'
);
CREATE INDEX ix_indexed_documents_tenant_id_language ON indexed_documents (tenant_id, language);
CREATE TABLE chunks (
    document_id uuid NOT NULL
        CONSTRAINT fk_chunks_document_id REFERENCES indexed_documents (document_id) ON DELETE CASCADE,
    number integer NOT NULL,
    tenant_id text NOT NULL,
    page integer NOT NULL,
    text text NOT NULL,
    words tsvector NOT NULL,
    language text NOT NULL DEFAULT 'simple',
    CONSTRAINT pk_chunks PRIMARY KEY (document_id, number)
);
CREATE INDEX ix_chunks_words ON chunks USING gin (words);
"""
"""The tables of the indexer's projection."""


def put(
    document_id: UUID,
    tenant_id: str,
    name: str,
    pages: int,
    chunks: Sequence[tuple[int, int, str]],
    language: str = SIMPLE,
) -> Script[bool]:
    """Index a document, in place of what was indexed of it before.

    Args:
        chunks: number, page and text of each; clean, and short enough for a tsvector.
        language: of the document, one of `offsetzero.store.languages`.

    Returns:
        False when the document was removed: an upload handled late does not bring it back.
    """
    rows = yield (
        "INSERT INTO indexed_documents AS d (document_id, tenant_id, name, pages, language) "
        "VALUES (%s, %s, %s, %s, %s) "
        "ON CONFLICT (document_id) DO UPDATE SET name = excluded.name, pages = excluded.pages, "
        "language = excluded.language, indexed_at = now() WHERE d.removed_at IS NULL RETURNING 1",
        (document_id, tenant_id, name, pages, language),
    )
    if not rows:
        return False
    yield "DELETE FROM chunks WHERE document_id = %s", (document_id,)
    yield (
        "INSERT INTO chunks (document_id, tenant_id, language, number, page, text, words) "
        "SELECT %s, %s, %s, c.number, c.page, c.text, to_tsvector(%s::regconfig, c.encoded) "
        "FROM unnest(%s::int[], %s::int[], %s::text[], %s::text[]) AS c (number, page, text, encoded)",
        (
            document_id,
            tenant_id,
            language,
            configuration(language),
            *([chunk[i] for chunk in chunks] for i in range(3)),
            [wording.encode(chunk[2]) for chunk in chunks],
        ),
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


def remove_everywhere(document_id: UUID, tenant_id: str) -> Script[None]:
    """Remove a document from every generation there is, also from those that nobody works for at present."""
    yield from generations.stay(GROUP)
    (path,) = (yield "SELECT current_setting('search_path')", ())[0]
    for number in (yield from generations.numbers(GROUP)):
        yield (
            "SELECT set_config('search_path', quote_ident(%s) || ', ' || %s, true)",
            (Generation(GROUP, number).schema, path),
        )
        yield from remove(document_id, tenant_id)
    yield "SELECT set_config('search_path', %s, true)", (path,)


def is_removed(document_id: UUID) -> Script[bool]:
    """Whether the document was removed here."""
    rows = yield (
        "SELECT 1 FROM indexed_documents WHERE document_id = %s AND removed_at IS NOT NULL",
        (document_id,),
    )
    return bool(rows)
