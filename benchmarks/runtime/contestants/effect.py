"""The effect of the row `effect`: a row for each event, written alone or by the batch, and the look at them after."""

from collections.abc import Sequence

import psycopg
from confluent_kafka import Message

TABLE = (
    "CREATE TABLE IF NOT EXISTS bench_effects (number bigint NOT NULL, document_id uuid NOT NULL, name text NOT NULL)"
)
CLAIM = (
    "INSERT INTO processed_events (group_name, generation, source, event_id, redrive_no, outcome)"
    " SELECT %s, 1, source, event_id, 0, 'applied' FROM unnest(%s::text[], %s::text[]) AS claimed (source, event_id)"
    " ORDER BY source, event_id ON CONFLICT DO NOTHING RETURNING source, event_id"
)
ONE = "INSERT INTO bench_effects (number, document_id, name) VALUES (%s, %s, %s)"
MANY = (
    "INSERT INTO bench_effects (number, document_id, name) SELECT * FROM unnest(%s::bigint[], %s::uuid[], %s::text[])"
)


def identity(message: Message) -> tuple[str, str]:
    """Source and id of an event."""
    headers = dict(message.headers())
    return headers["ce_source"].decode(), headers["ce_id"].decode()


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
