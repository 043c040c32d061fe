"""Search over the chunks of the index: by words, or by words and meaning together."""

import html
import re
from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum
from uuid import UUID

from offsetzero.store import embeddings, made_with, vectors, wording
from offsetzero.store.embeddings import Model
from offsetzero.store.index import GROUP
from offsetzero.store.languages import LANGUAGES, SIMPLE, configuration
from offsetzero.store.script import Rows, Script

# Marks around a hit while PostgreSQL makes the snippet; from the private use area, which no stored text has.
_START, _STOP = "\ue000", "\ue001"
_HEADLINE = (
    f"StartSel={_START}, StopSel={_STOP}, MaxFragments=2, MaxWords=28, MinWords=12, ShortWord=0, FragmentDelimiter= … "
)
_LITERAL = re.compile(r'"|(?:^|\s)-')
K = 60
"""Of reciprocal rank fusion (Cormack, Clarke, Büttcher 2009): a document's score is the sum of 1 / (K + its place)."""
_SNIPPET_WORDS, _SNIPPET_CHARACTERS = 28, 300  # of a chunk in which no word of the query is


class Method(StrEnum):
    """How documents were looked for."""

    WORDS = "words"
    HYBRID = "hybrid"


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


@dataclass(frozen=True, slots=True)
class Meaning:
    """The vector of a query, and whose it is.

    Attributes:
        model: that made it.
        vector: as it gave it.
        least: cosine below which a text is not near it.
    """

    model: Model
    vector: Sequence[float]
    least: float


@dataclass(frozen=True, slots=True)
class Found:
    """What a search has found, how, and the model of the generation that was searched, if it has vectors."""

    hits: list[Hit]
    method: Method
    model: Model | None


def is_literal(query: str) -> bool:
    """Whether a query says which words it means: it has a phrase, or an exclusion. Nothing near is wanted then."""
    return _LITERAL.search(query) is not None


def model() -> Script[Model | None]:
    """The model of the generation that is read; None for one without vectors."""
    return vectors.model_of((yield from made_with.of_read(GROUP)))


def search(tenant_id: str, query: str, *, limit: int, offset: int = 0, meaning: Meaning | None = None) -> Script[Found]:
    """A tenant's documents that match, best first, each by its best chunk. In a transaction of one snapshot.

    The query is taken once for each language that the tenant has documents in: words match their inflected forms in
    that language. A query of words alone leaves that language's stop words out, unless it has no others; one with
    a phrase or an exclusion means each word.

    Args:
        tenant_id: whose documents.
        query: words, `"phrases"`, `or`, `-not` (PostgreSQL's `websearch_to_tsquery`), cleaned like the text.
        limit: documents at most.
        offset: documents before them that are left out.
        meaning: of the query. It is left out where the generation that is read has another model.
    """
    of_generation = yield from model()
    if meaning is not None and meaning.model != of_generation:
        meaning = None
    names = sorted({SIMPLE, *LANGUAGES})
    words = (wording.encode(query), names, [configuration(name) for name in names], tenant_id, tenant_id)
    if meaning is None:
        best = yield _BY_WORDS, (*words, limit, offset)
    else:
        near, of_near = yield from vectors.nearest(tenant_id, embeddings.written(meaning.vector))
        best = yield _HYBRID.replace("%NEAR%", near), (*words, *of_near, 1 - meaning.least, limit, offset)
    snippets = yield from _snippets(best)
    hits = [
        Hit(document_id, name, page, rank, snippet)
        for (document_id, name, page, rank, *_), snippet in zip(best, snippets, strict=True)
    ]
    return Found(hits, Method.WORDS if meaning is None else Method.HYBRID, of_generation)


def _snippets(best: Rows) -> Script[list[str]]:
    """The best place of each chunk; the beginning of one that was found by its meaning alone."""
    marked = [row for row in best if row[6] is not None]
    rows = yield (
        "SELECT ts_headline(c.configuration::regconfig, c.encoded, c.query::tsquery, %s) "
        "FROM unnest(%s::text[], %s::text[], %s::text[]) WITH ORDINALITY "
        "AS c (configuration, encoded, query, number) ORDER BY c.number",
        (
            _HEADLINE,
            [configuration(row[5]) for row in marked],
            [wording.encode(row[4]) for row in marked],
            [row[6] for row in marked],
        ),
    )
    headlines = iter(rows)
    return [_beginning(row[4]) if row[6] is None else _marked(next(headlines)[0]) for row in best]


# Each language is tried that the tenant has documents in; `EXISTS` looks at one entry of an index for each.
_HITS = """
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
"""
_BEST = """
best AS (SELECT * FROM found ORDER BY rank DESC, document_id LIMIT %s OFFSET %s)
SELECT b.document_id, d.name, c.page, b.rank, c.text, c.language, b.query::text
FROM best b JOIN chunks c USING (document_id, number) JOIN indexed_documents d USING (document_id)
ORDER BY b.rank DESC, b.document_id
"""
_BY_WORDS = f"{_HITS}found AS (SELECT * FROM hits),{_BEST}"  # noqa: S608 - as written here
# How many neighbours there are does not depend on the page: else a document could be on two of them, or on none.
_HYBRID = f"""{_HITS}
by_words AS (
    SELECT document_id, number, query, row_number() OVER (ORDER BY rank DESC, document_id) AS place FROM hits
),
near AS MATERIALIZED (%NEAR%),
nearest AS (
    SELECT DISTINCT ON (document_id) document_id, number, distance FROM near WHERE distance <= %s
    ORDER BY document_id, distance, number
),
by_meaning AS (
    SELECT document_id, number, row_number() OVER (ORDER BY distance, document_id) AS place FROM nearest
),
found AS (
    SELECT document_id, coalesce(w.number, m.number) AS number, w.query,
        coalesce(1 / ({K} + w.place::float8), 0) + coalesce(1 / ({K} + m.place::float8), 0) AS rank
    FROM by_words w FULL JOIN by_meaning m USING (document_id)
),
{_BEST}"""  # noqa: S608 - as written here


def _marked(headline: str) -> str:
    text = " ".join(html.escape(wording.decode(headline)).split())
    text = text.replace(_START, "<mark>").replace(_STOP, "</mark>")
    return text.replace("</mark><mark>", "")  # between letters of a word in a language that writes no spaces


def _beginning(text: str) -> str:
    return html.escape(" ".join(text.split()[:_SNIPPET_WORDS])[:_SNIPPET_CHARACTERS])
