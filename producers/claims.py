"""The relay's statements: rows that wait, taken shard by shard; what became of them; how many there are.

Rows are claimed by "not published yet", never by a cursor: numbers and ids are taken before their transactions commit,
so a cursor skips rows (watermill#311, kamu-cli#1398), and one of transaction ids stalls behind the longest transaction,
or skips everything after a restore (watermill#576). Nobody else claims the rows of a relay's shards (`shards`).
"""

from collections import Counter
from collections.abc import Sequence
from typing import Any, NamedTuple, TypeAlias

import psycopg

from offsetzero.producers.rows import Row
from offsetzero.producers.waves import MOST
from offsetzero.store.sentences import storable

Connection: TypeAlias = psycopg.Connection[Any]

BATCH_BYTES = 64 * 1024 * 1024
"""Bytes of payloads of one claim, and each shard's first row besides."""
NEWEST = 4
"""Rows of a shard that are claimed from its end while it has more than its part: of a claim of `MOST`, else fewer."""
_PRUNE_ROWS = 1_000

_COLUMNS = (
    "found.id, found.aggregateid, found.type, found.topic, found.payload, found.headers, found.created_at, found.shard"
)
# The keys of parked rows, and those that were refused lately, wait.
_OF_A_SHARD = """
    SELECT o.*, sum(coalesce(octet_length(o.payload), 0)) OVER (ORDER BY o.number {order} ROWS UNBOUNDED PRECEDING)
        - coalesce(octet_length(o.payload), 0) AS bytes_before, row_number() OVER (ORDER BY o.number {order}) AS rank
    FROM outbox o
    WHERE o.published_at IS NULL AND o.parked_at IS NULL AND o.shard = mine.shard
        AND NOT coalesce(o.aggregateid, o.id::text) = ANY (%(blocked)s)
        AND coalesce(o.aggregateid, o.id::text) NOT IN (
            SELECT coalesce(p.aggregateid, p.id::text) FROM outbox p
            WHERE p.error IS NOT NULL AND p.published_at IS NULL AND p.parked_at IS NOT NULL)
    ORDER BY o.number {order} LIMIT %(rows)s
"""
# A shard gives its first rows, all of them as many when there are too many: nothing of a key is left out before
# something of it.
_CLAIM = f"""
SELECT {_COLUMNS}
FROM unnest(%(shards)s::smallint[]) AS mine (shard) CROSS JOIN LATERAL ({_OF_A_SHARD.format(order="")}) AS found
WHERE found.bytes_before <= %(bytes)s
ORDER BY found.rank, found.number LIMIT %(most)s
"""  # noqa: S608
# A shard gives its last rows, those that are the first of their keys.
_CLAIM_NEWEST = f"""
SELECT {_COLUMNS}
FROM unnest(%(shards)s::smallint[]) AS mine (shard) CROSS JOIN LATERAL ({_OF_A_SHARD.format(order="DESC")}) AS found
WHERE found.bytes_before <= %(bytes)s AND found.number = coalesce((
    SELECT one.number FROM outbox one
    WHERE one.published_at IS NULL AND one.parked_at IS NULL AND one.aggregateid = found.aggregateid
    ORDER BY one.number LIMIT 1), found.number)
ORDER BY found.rank
"""  # noqa: S608
_MARK = "UPDATE outbox SET published_at = now() WHERE id = ANY (%s)"
_REFUSE = """
UPDATE outbox SET attempts = attempts + 1, error = %s, parked_at = CASE WHEN %s THEN now() END
WHERE id = %s AND published_at IS NULL
"""
# Of a relay's own shards: they would all count the same, and a million rows that wait are what makes them late. In two
# parts, for each of which there is an index that has nothing of what is published.
_MEASURE = """
SELECT waiting.rows + parked.rows, parked.rows, waiting.oldest FROM (
    SELECT count(*) AS rows, coalesce(extract(epoch FROM clock_timestamp() - min(created_at) FILTER (
        WHERE coalesce(aggregateid, id::text) NOT IN (
            SELECT coalesce(p.aggregateid, p.id::text) FROM outbox p
            WHERE p.error IS NOT NULL AND p.published_at IS NULL AND p.parked_at IS NOT NULL))), 0)::float8 AS oldest
    FROM outbox WHERE published_at IS NULL AND parked_at IS NULL AND shard = ANY (%(shards)s)
) AS waiting, (
    SELECT count(*) AS rows FROM outbox
    WHERE error IS NOT NULL AND published_at IS NULL AND parked_at IS NOT NULL AND shard = ANY (%(shards)s)
) AS parked
"""
_PRUNE = """
DELETE FROM outbox WHERE id IN (
    SELECT id FROM outbox WHERE published_at < now() - interval '1 hour'
    ORDER BY published_at LIMIT %s FOR UPDATE SKIP LOCKED)
"""


class Measured(NamedTuple):
    """What is not published: rows, those of them that are parked, and the age of the oldest that can go on, seconds."""

    depth: int
    parked: int
    oldest: float


def claim(
    connection: Connection, shards: Sequence[int], blocked: Sequence[str], most: int, in_all: int = MOST
) -> list[Row]:
    """The first rows that wait in some shards, in their order.

    When there are more, the newest that wait in each come before them, of keys of which nothing older waits: whoever
    writes now and then does not wait for the hundred thousand rows of another.

    Args:
        connection: of the relay that has these shards.
        shards: which.
        blocked: keys whose rows are left out.
        most: rows of one shard.
        in_all: rows of all shards; the newest come besides.
    """
    size = BATCH_BYTES // max(len(shards), 1)
    given = {"shards": list(shards), "blocked": list(blocked), "rows": most, "bytes": size, "most": in_all}
    rows = [Row(*columns) for columns in connection.execute(_CLAIM, given, binary=True)]
    if not _has_more(rows, most, size, in_all):
        return rows
    given |= {"rows": max(1, NEWEST * in_all // MOST), "bytes": size // 4}
    first = {row.id for row in rows}
    newest = [Row(*columns) for columns in connection.execute(_CLAIM_NEWEST, given, binary=True)]
    return [*(row for row in newest if row.id not in first), *rows]


def _has_more(rows: Sequence[Row], most: int, size: int, in_all: int) -> bool:
    """Whether a claim has left rows of a shard."""
    if len(rows) >= in_all:
        return True
    of = Counter(row.shard for row in rows)
    return any(count >= most for count in of.values()) or sum(len(row.payload or b"") for row in rows) > size


def mark(connection: Connection, rows: Sequence[Row]) -> None:
    """Note that rows are published."""
    if rows:
        connection.execute(_MARK, ([row.id for row in rows],))


def refuse(connection: Connection, row: Row, error: str, *, park: bool) -> None:
    """Note that a row could not be published, for people; parked, it is not tried again until one of them says so."""
    connection.execute(_REFUSE, (storable(error), park, row.id))


def measure(connection: Connection, shards: Sequence[int]) -> Measured:
    """How many rows of some shards wait, and for how long."""
    return Measured(*(connection.execute(_MEASURE, {"shards": list(shards)}).fetchone() or (0, 0, 0.0)))


def prune(connection: Connection) -> bool:
    """Delete what was published more than an hour ago, a thousand rows at most; returns whether there may be more."""
    return connection.execute(_PRUNE, (_PRUNE_ROWS,)).rowcount == _PRUNE_ROWS
