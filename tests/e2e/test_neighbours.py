"""How many of the real neighbours of a query the index finds, among thousands of vectors of several tenants."""

import random
from collections.abc import Iterator
from pathlib import Path

import psycopg
import pytest
from e2e.test_hybrid_search import opened

from offsetzero.consumers.groups import indexer
from offsetzero.consumers.projection import make_indexes
from offsetzero.generation import Generation
from offsetzero.settings import Settings
from offsetzero.store import vectors
from offsetzero.store.embeddings import written
from offsetzero.store.script import run

DIMENSIONS = 48
CLUSTERS = 40
SHARES = {"large": 3_000, "middle": 800, "small": 200}
"""Vectors of each tenant: the last has a twentieth of all, and those of others are in its way."""
QUERIES = 20


@pytest.fixture
def connection(database_url: str, tmp_path: Path) -> Iterator[psycopg.Connection]:
    """A generation that was filled, and then got its index, as a rebuild makes it."""
    own = {"base_url": "http://127.0.0.1:1/v1", "model": "m", "dimensions": DIMENSIONS}
    settings = Settings(home=tmp_path, database_url=database_url, embeddings=own)
    opened(settings)
    dice = random.Random(1)
    centres = [_direction(dice) for _ in range(CLUSTERS)]
    with psycopg.connect(database_url, autocommit=True) as made:
        made.execute("SET search_path = indexer_g1, public")
        made.execute("DROP INDEX ix_chunk_vectors_embedding")
        made.execute("SET session_replication_role = replica")  # the chunks themselves are not needed
        with made.cursor().copy("COPY chunk_vectors (document_id, number, tenant_id, embedding) FROM STDIN") as copy:
            rows = [tenant for tenant, count in SHARES.items() for _ in range(count)]
            dice.shuffle(rows)
            for number, tenant in enumerate(rows):
                copy.write_row((f"00000000-0000-0000-0000-{number:012}", 0, tenant, _near(dice, centres)))
        assert indexer.group.projection is not None
        late = Generation("indexer"), indexer.group.projection, indexer.with_vectors(settings)
        assert make_indexes(made, *late) == [*vectors.INDEX]
        assert make_indexes(made, *late) == [], "it is there"
        made.execute("ANALYZE chunk_vectors")
        made.autocommit = False
        yield made


def test_the_index_finds_the_neighbours_of_each_tenant(
    connection: psycopg.Connection, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Compared with all vectors of the tenant, one by one; for queries like what is there, and like nothing there."""
    dice = random.Random(1)
    centres = [_direction(dice) for _ in range(CLUSTERS)]
    queries = [_near(dice, centres) for _ in range(QUERIES)], [written(_direction(dice)) for _ in range(QUERIES)]
    for tenant in SHARES:
        for kind, asked, least in zip(("like", "unlike"), queries, (0.99, 0.98), strict=True):
            monkeypatch.undo()
            exact = [_nearest(connection, tenant, query) for query in asked]
            monkeypatch.setattr(vectors, "EXACT", 0)
            found = [_nearest(connection, tenant, query, indexed=True) for query in asked]
            assert [len(one) for one in found] == [vectors.NEIGHBOURS] * QUERIES
            for first in (10, vectors.NEIGHBOURS):
                hits = sum(len({*a[:first]} & {*b[:first]}) for a, b in zip(exact, found, strict=True))
                recall = hits / (first * QUERIES)
                print(f"{tenant}, {kind}: {recall:.4f} of the nearest {first}")
                assert recall >= least


def _nearest(connection: psycopg.Connection, tenant: str, query: str, *, indexed: bool = False) -> list[object]:
    with connection.transaction():
        sql, parameters = run(connection, vectors.nearest(tenant, query))
        if indexed:
            connection.execute("SET LOCAL enable_seqscan = off; SET LOCAL enable_sort = off")
            plan = connection.execute(f"EXPLAIN {sql}".encode(), parameters).fetchall()
            assert "ix_chunk_vectors_embedding" in str(plan)
        rows = connection.execute(sql.encode(), parameters).fetchall()
        return [row[0] for row in sorted(rows, key=lambda row: (row[2], row[0]))]


def _direction(dice: random.Random) -> list[float]:
    return [dice.gauss(0, 1) for _ in range(DIMENSIONS)]


def _near(dice: random.Random, centres: list[list[float]]) -> str:
    centre = dice.choice(centres)
    return written([number + dice.gauss(0, 0.6) for number in centre])
