"""The indexer's projection: chunks of text in a full-text index, and the search over them."""

import html
from collections.abc import Sequence
from dataclasses import dataclass
from uuid import UUID

from offsetzero.generation import Generation
from offsetzero.store import generations, wording
from offsetzero.store.languages import LANGUAGES, SIMPLE, configuration
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

# Marks around a hit while PostgreSQL makes the snippet; from the private use area, which no stored text has.
_START, _STOP = "\ue000", "\ue001"
_HEADLINE = (
    f"StartSel={_START}, StopSel={_STOP}, MaxFragments=2, MaxWords=28, MinWords=12, ShortWord=0, FragmentDelimiter= … "
)


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


def search(tenant_id: str, query: str, *, limit: int, offset: int = 0) -> Script[list[Hit]]:
    """A tenant's documents that match, best first, each by its best chunk.

    The query is taken once for each language that the tenant has documents in: words match their inflected forms in
    that language. A query of words alone leaves that language's stop words out, unless it has no others; one with
    a phrase or an exclusion means each word.

    Args:
        query: words, `"phrases"`, `or`, `-not` (PostgreSQL's `websearch_to_tsquery`), cleaned like the text.
    """
    names = sorted({SIMPLE, *LANGUAGES})
    configurations = [configuration(name) for name in names]
    best = yield (
        _SEARCH,
        (wording.encode(query), names, configurations, tenant_id, tenant_id, limit, offset),
    )
    headlines = yield (
        "SELECT ts_headline(c.configuration::regconfig, c.encoded, c.query::tsquery, %s) "
        "FROM unnest(%s::text[], %s::text[], %s::text[]) WITH ORDINALITY "
        "AS c (configuration, encoded, query, number) ORDER BY c.number",
        (
            _HEADLINE,
            [configuration(row[5]) for row in best],
            [wording.encode(row[4]) for row in best],
            [row[6] for row in best],
        ),
    )
    return [
        Hit(document_id, found_name, page, rank, _marked(headline))
        for (document_id, found_name, page, rank, *_), (headline,) in zip(best, headlines, strict=True)
    ]


# Each language is tried that the tenant has documents in; `EXISTS` looks at one entry of an index for each.
_SEARCH = """
WITH given AS (SELECT %s AS query),
meant AS (
    SELECT l.language,
        websearch_to_tsquery(l.configuration::regconfig, given.query) AS all_words,
        websearch_to_tsquery(('pg_catalog.' || l.language)::regconfig, given.query) AS without_stop_words
    FROM given, unnest(%s::text[], %s::text[]) AS l (language, configuration)
    WHERE EXISTS (SELECT FROM indexed_documents d WHERE d.tenant_id = %s AND d.language = l.language)
),
q AS MATERIALIZED (
    SELECT m.language,
        CASE WHEN given.query ~ '"|(^|\\s)-' OR numnode(m.without_stop_words) = 0
            THEN m.all_words ELSE m.without_stop_words END AS query
    FROM meant m, given
),
hits AS (
    SELECT DISTINCT ON (c.document_id) c.document_id, c.number, q.query, ts_rank_cd(c.words, q.query, 32) AS rank
    FROM q JOIN chunks c ON c.language = q.language AND c.words @@ q.query
    WHERE c.tenant_id = %s
    ORDER BY c.document_id, rank DESC, c.number
),
best AS (SELECT * FROM hits ORDER BY rank DESC, document_id LIMIT %s OFFSET %s)
SELECT b.document_id, d.name, c.page, b.rank, c.text, c.language, b.query::text
FROM best b JOIN chunks c USING (document_id, number) JOIN indexed_documents d USING (document_id)
ORDER BY b.rank DESC, b.document_id
"""


def _marked(headline: str) -> str:
    text = " ".join(html.escape(wording.decode(headline)).split())
    text = text.replace(_START, "<mark>").replace(_STOP, "</mark>")
    return text.replace("</mark><mark>", "")  # between letters of a word in a language that writes no spaces
