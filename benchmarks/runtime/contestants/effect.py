"""The effect of the row `effect`: a row for each event, written alone or by the batch, and the look at them after."""

from collections.abc import Sequence

import psycopg

TABLE = (
    "CREATE TABLE IF NOT EXISTS bench_effects (number bigint NOT NULL, document_id uuid NOT NULL, name text NOT NULL)"
)
ONE = "INSERT INTO bench_effects (number, document_id, name) VALUES (%s, %s, %s)"
MANY = (
    "INSERT INTO bench_effects (number, document_id, name) SELECT * FROM unnest(%s::bigint[], %s::uuid[], %s::text[])"
)


def prepare(database_url: str) -> None:
    """Empty tables, as every contestant finds them."""
    with psycopg.connect(database_url, autocommit=True) as connection:
        connection.execute(TABLE)
        connection.execute("TRUNCATE bench_effects, processed_events")
        connection.execute("CHECKPOINT")


def problems(database_url: str, count: int) -> Sequence[str]:
    """What is wrong with the effects of so many events: each must be there once, with its outcome."""
    with psycopg.connect(database_url) as connection:
        rows = connection.execute("SELECT count(*), count(DISTINCT number) FROM bench_effects").fetchone()
        outcomes = connection.execute("SELECT count(*) FROM processed_events").fetchone()
    assert rows is not None
    assert outcomes is not None
    found = []
    if rows != (count, count):
        found.append(f"{rows[0]:,} effects of {rows[1]:,} events, not {count:,}")
    if outcomes[0] != count:
        found.append(f"{outcomes[0]:,} outcomes, not {count:,}")
    return found
