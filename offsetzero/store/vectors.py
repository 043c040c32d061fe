"""Vectors in a generation of the index: which model they are of, and the texts that are nearest to a query."""

from collections.abc import Mapping, Sequence
from typing import Any

from offsetzero.errors import ConfigurationError
from offsetzero.store.embeddings import Model, Texts
from offsetzero.store.script import Script

MADE_WITH = "embeddings"
"""Name of the model in what a generation was made with."""
PGVECTOR = (0, 8, 0)
"""The oldest version: the first whose index goes on (`hnsw.iterative_scan`) when a filter leaves too little."""
EXACT = 5_000
"""Texts of a tenant up to which all are compared: nothing is overlooked."""
NEIGHBOURS = 100
"""Texts that are nearest to a query, of which its documents are taken."""
EF_SEARCH = 4 * NEIGHBOURS
"""Candidates that a scan of the index keeps. Of 4,000 vectors it finds 99.3 % of the real neighbours of a query that is
like none of them, with half as many 94 % (`tests/e2e/test_neighbours.py`)."""
MAX_SCANNED = 200_000
"""Texts, of all tenants, that a search goes through for the neighbours in one."""
INDEX = {"ix_chunk_vectors_embedding": "chunk_vectors USING hnsw (embedding halfvec_cosine_ops)"}
"""The index of the neighbours; made of all rows at once it is several times faster than one by one, and no worse."""

# halfvec: half of the room, and an index up to 4,000 dimensions, where vector has one up to 2,000.
_TABLE = """
CREATE TABLE chunk_vectors (
    document_id uuid NOT NULL,
    number integer NOT NULL,
    tenant_id text NOT NULL,
    embedding halfvec({dimensions}) NOT NULL,
    CONSTRAINT pk_chunk_vectors PRIMARY KEY (document_id, number),
    CONSTRAINT fk_chunk_vectors_chunk FOREIGN KEY (document_id, number) REFERENCES chunks ON DELETE CASCADE
);
CREATE INDEX ix_chunk_vectors_tenant_id ON chunk_vectors (tenant_id);
"""


def tables(model: Model) -> str:
    """The SQL of what a generation has besides the tables of the index."""
    return _TABLE.format(dimensions=model.dimensions)


def made_with(model: Model) -> dict[str, Any]:
    """What is written down of a generation."""
    return {MADE_WITH: {"model": model.name, "dimensions": model.dimensions}}


def model_of(made_with: Mapping[str, Any] | None) -> Model | None:
    """The model of a generation, by what is written down of it; None for one without vectors."""
    found = (made_with or {}).get(MADE_WITH)
    return Model(found["model"], found["dimensions"]) if found else None


def require() -> Script[None]:
    """See that the database has pgvector: migrations make it where the role may.

    Raises:
        ConfigurationError: it has none, or an old one; with the statement that a superuser runs.
    """
    rows = yield (
        "SELECT (SELECT extversion FROM pg_extension WHERE extname = 'vector'), to_regtype('halfvec') IS NOT NULL,"
        " EXISTS (SELECT FROM pg_available_extensions WHERE name = 'vector'), current_database()",
        (),
    )
    version, is_found, is_there, database = rows[0]
    head = f"OFFSETZERO_EMBEDDINGS__BASE_URL: search by meaning needs pgvector {'.'.join(map(str, PGVECTOR))} or newer"
    if version is None:
        install = "" if is_there else " install it on the server (https://github.com/pgvector/pgvector), then"
        raise ConfigurationError(
            f"{head}, which the database {database} does not have:{install} have a superuser run there:"
            " CREATE EXTENSION vector"
        )
    if tuple(int(part) for part in version.split(".") if part.isdigit()) < PGVECTOR:
        raise ConfigurationError(
            f"{head}; the database {database} has {version}: install a newer one on the server, then have a superuser"
            " run there: ALTER EXTENSION vector UPDATE"
        )
    if not is_found:
        raise ConfigurationError(
            f"{head}, and the schema in which the database {database} has it is not in the search_path of this role:"
            " have a superuser run there: ALTER EXTENSION vector SET SCHEMA public"
        )


def unused(group: str, settled: Model | None) -> Script[list[Model]]:
    """Models of generations of a group that were dropped, of which no generation is any more, of any group.

    Args:
        group: its name.
        settled: the one that the settings name, which the next generation will be of; None where they name none.
    """
    rows = yield (
        "SELECT made_with FROM group_generations g WHERE group_name = %s AND dropped_at IS NOT NULL AND NOT EXISTS ("
        "SELECT FROM group_generations o WHERE o.dropped_at IS NULL AND o.made_with -> %s = g.made_with -> %s)",
        (group, MADE_WITH, MADE_WITH),
    )
    found = {model for (made,) in rows if (model := model_of(made)) is not None}
    return sorted(found - {settled}, key=str)


def put(texts: Texts, numbers: Sequence[int]) -> Script[bool]:
    """Give the chunks of a document, which have none yet, the vectors that are kept of their texts.

    Args:
        texts: of the chunks.
        numbers: of the chunks, in the same order.

    Returns:
        False when one of them has none: they were taken out meanwhile.
    """
    rows = yield (
        "WITH put AS (INSERT INTO chunk_vectors (document_id, number, tenant_id, embedding)"
        " SELECT e.document_id, c.number, %s, e.vector::halfvec FROM unnest(%s::int[], %s::bytea[]) AS c (number, hash)"
        " JOIN embeddings e ON e.document_id = %s AND e.model = %s AND e.dimensions = %s AND e.hash = c.hash"
        " RETURNING 1) SELECT count(*) FROM put",
        (texts.tenant_id, numbers, texts.hashes, texts.document_id, texts.model.name, texts.model.dimensions),
    )
    return bool(rows[0][0] == len(numbers))


def nearest(tenant_id: str, vector: str) -> Script[tuple[str, tuple[Any, ...]]]:
    """Choose how the neighbours of a query are found: SQL of rows `document_id, number, distance`, its parameters.

    A tenant with few texts has all of them compared; the index would go through those of others for them. In a
    transaction, which is set up for it.

    Args:
        tenant_id: whose texts.
        vector: of the query, as pgvector reads it.
    """
    rows = yield (
        "SELECT count(*) FROM (SELECT FROM chunk_vectors WHERE tenant_id = %s LIMIT %s) few",
        (tenant_id, EXACT + 1),
    )
    if rows[0][0] <= EXACT:
        return _EXACT, (vector, tenant_id, NEIGHBOURS)
    yield (
        "SELECT set_config('hnsw.iterative_scan', 'relaxed_order', true), set_config('hnsw.ef_search', %s, true),"
        " set_config('hnsw.max_scan_tuples', %s, true), set_config('hnsw.scan_mem_multiplier', %s, true)",
        (str(EF_SEARCH), str(MAX_SCANNED), "8"),  # times work_mem
    )
    return _INDEXED, (vector, tenant_id, vector, NEIGHBOURS)


_EXACT = (
    "SELECT document_id, number, distance FROM (SELECT v.document_id, v.number,"
    " v.embedding <=> %s::halfvec AS distance FROM chunk_vectors v WHERE v.tenant_id = %s OFFSET 0) every"
    " ORDER BY distance, document_id, number LIMIT %s"
)
_INDEXED = (
    "SELECT v.document_id, v.number, v.embedding <=> %s::halfvec AS distance FROM chunk_vectors v"
    " WHERE v.tenant_id = %s ORDER BY v.embedding <=> %s::halfvec LIMIT %s"
)
