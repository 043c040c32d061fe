"""The relay's statements: rows that wait, taken shard by shard; what became of them; how many there are.

Rows are claimed by "not published yet", never by a cursor: numbers and ids are taken before their transactions commit,
so a cursor skips rows (watermill#311, kamu-cli#1398), and one of transaction ids stalls behind the longest transaction,
or skips everything after a restore (watermill#576). Nobody else claims the rows of a relay's shards (`shards`).

What is published stays in the index of what waits for as long as any transaction of the server is open that began
before: a claim from the beginning goes past all of it, a second for each million. So a claim takes note of the first
row that waits in each shard, and the next one begins there, or at what has come before it meanwhile: the rows of
transactions that had not ended by then, which each row names (`xid`). See `Seen`.
"""

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple, TypeAlias
from uuid import UUID

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
_BEGINNING, _NOTHING = -(2**63), 2**63 - 1  # below and above all numbers: for nothing is known, and nothing waits

_COLUMNS = (
    "found.id, found.aggregateid, found.type, found.topic, found.payload, found.headers, found.created_at, found.shard"
)
# What is before what an earlier claim has found in a shard: only what had not ended for it, and has by now.
_COME = """
    SELECT one.shard, min(one.number) AS number FROM (
        SELECT o.shard, o.number FROM outbox o
        WHERE o.published_at IS NULL AND o.parked_at IS NULL AND o.xid >= pg_snapshot_xmax(%(snapshot)s::pg_snapshot)
            AND o.xid < pg_snapshot_xmax(pg_current_snapshot())
        UNION ALL
        SELECT o.shard, o.number FROM outbox o
        WHERE o.published_at IS NULL AND o.parked_at IS NULL AND o.xid IS NOT NULL AND o.xid = ANY (ARRAY(
            SELECT open.xid FROM pg_snapshot_xip(%(snapshot)s::pg_snapshot) AS open (xid)
            WHERE pg_visible_in_snapshot(open.xid, pg_current_snapshot())))
    ) AS one GROUP BY one.shard
"""
_COME_ALL = "SELECT NULL::smallint AS shard, NULL::bigint AS number WHERE false"  # nothing has been seen
# The first row that waits in each shard, by this statement's own snapshot.
_FIRSTS = """
WITH come AS MATERIALIZED ({come}), mine AS MATERIALIZED (
    SELECT given.shard, (
        SELECT o.number FROM outbox o WHERE o.published_at IS NULL AND o.parked_at IS NULL AND o.shard = given.shard
            AND o.number >= least(given.first, (SELECT come.number FROM come WHERE come.shard = given.shard))
        ORDER BY o.number LIMIT 1) AS first
    FROM unnest(%(shards)s::smallint[], %(firsts)s::bigint[]) AS given (shard, first)
)
"""
# The keys of parked rows, and those that were refused lately, wait.
_OF_A_SHARD = """
    SELECT o.*, sum(coalesce(octet_length(o.payload), 0)) OVER (ORDER BY o.number {order} ROWS UNBOUNDED PRECEDING)
        - coalesce(octet_length(o.payload), 0) AS bytes_before, row_number() OVER (ORDER BY o.number {order}) AS rank
    FROM outbox o
    WHERE o.published_at IS NULL AND o.parked_at IS NULL AND o.shard = mine.shard AND o.number >= mine.first
        AND NOT coalesce(o.aggregateid, o.id::text) = ANY (%(blocked)s)
        AND coalesce(o.aggregateid, o.id::text) NOT IN (
            SELECT coalesce(p.aggregateid, p.id::text) FROM outbox p
            WHERE p.error IS NOT NULL AND p.published_at IS NULL AND p.parked_at IS NOT NULL)
    ORDER BY o.number {order} LIMIT %(rows)s
"""
# A shard gives its first rows, all of them as many when there are too many: nothing of a key is left out before
# something of it. Each gives one row at least, without an id when nothing waits: where the next claim begins.
_CLAIM = f"""
SELECT {_COLUMNS}, mine.shard, mine.first, CASE WHEN coalesce(found.rank, 1) = 1 THEN pg_current_snapshot()::text END
FROM mine LEFT JOIN LATERAL ({_OF_A_SHARD.format(order="")}) AS found ON found.bytes_before <= %(bytes)s
ORDER BY found.rank NULLS FIRST, found.number LIMIT %(most)s + cardinality(%(shards)s::smallint[])
"""  # noqa: S608
# A shard gives what waits first of the keys of its last rows.
_CLAIM_NEWEST = f"""
SELECT {_COLUMNS}
FROM mine CROSS JOIN LATERAL ({_OF_A_SHARD.format(order="DESC")}) AS newest
CROSS JOIN LATERAL (SELECT coalesce((
    SELECT o.number FROM outbox o
    WHERE o.published_at IS NULL AND o.parked_at IS NULL AND o.aggregateid = newest.aggregateid
        AND o.number >= mine.first
    ORDER BY o.number LIMIT 1), newest.number) AS number) AS key
CROSS JOIN LATERAL (
    SELECT o.* FROM outbox o
    WHERE o.published_at IS NULL AND o.parked_at IS NULL AND o.shard = mine.shard AND o.number = key.number
    LIMIT 1) AS found
WHERE newest.bytes_before <= %(bytes)s
ORDER BY newest.rank
"""  # noqa: S608
CLAIMS = {
    (statement, has_seen): _FIRSTS.format(come=_COME if has_seen else _COME_ALL) + text
    for statement, text in (("first", _CLAIM), ("newest", _CLAIM_NEWEST))
    for has_seen in (False, True)
}
"""Statements of a claim, by whether something has been seen: what has come since is found by an index of its own."""
_REMEMBERS = "SELECT EXISTS (SELECT FROM pg_index WHERE indexrelid = to_regclass('ix_outbox_come') AND indisvalid)"
_MARK = "UPDATE outbox SET published_at = now() WHERE id = ANY (%s)"
_REFUSE = """
UPDATE outbox SET attempts = attempts + 1, error = %s, parked_at = CASE WHEN %s THEN now() END
WHERE id = %s AND published_at IS NULL
"""
# Of a relay's own shards: they would all count the same, and a million rows that wait are what makes them late. In two
# parts, for each of which there is an index that has nothing of what is published.
_MEASURE = """
SELECT waiting.rows + parked.rows, parked.rows, waiting.oldest FROM (
    SELECT count(*) AS rows, coalesce(extract(epoch FROM clock_timestamp() - min(one.created_at) FILTER (
        WHERE coalesce(one.aggregateid, one.id::text) NOT IN (
            SELECT coalesce(p.aggregateid, p.id::text) FROM outbox p
            WHERE p.error IS NOT NULL AND p.published_at IS NULL AND p.parked_at IS NOT NULL))), 0)::float8 AS oldest
    FROM unnest(%(shards)s::smallint[], %(firsts)s::bigint[]) AS mine (shard, first) CROSS JOIN LATERAL (
        SELECT o.id, o.aggregateid, o.created_at FROM outbox o
        WHERE o.published_at IS NULL AND o.parked_at IS NULL AND o.shard = mine.shard AND o.number >= mine.first
        OFFSET 0) AS one
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


class Seen(NamedTuple):
    """Where the rows that wait began in each shard, and for which snapshot of the database.

    Before these nothing waits but what that snapshot did not see: rows of transactions that were open then, or have
    begun since. Their ids, which the rows have, say so exactly, whatever numbers the rows have got and when; so
    nothing of a key is seen before what precedes it. It is the memory of one session, which ends with its server: ids
    of transactions mean nothing in another one, such as one that a dump was restored to.
    """

    snapshot: str | None = None
    """As `pg_snapshot` is written: "xmin:xmax:open,…"."""
    firsts: Mapping[int, int] = {}
    """Numbers of rows by shard; one that is not named is looked at from the beginning."""


class Claimed(NamedTuple):
    """Rows, and what has been seen now; None when that is not to be remembered."""

    rows: list[Row]
    seen: Seen | None


class Measured(NamedTuple):
    """What is not published: rows, those of them that are parked, and the age of the oldest that can go on, seconds."""

    depth: int
    parked: int
    oldest: float


def claim(
    connection: Connection,
    seen: Seen | None,
    shards: Sequence[int],
    blocked: Sequence[str],
    most: int,
    in_all: int = MOST,
) -> Claimed:
    """The first rows that wait in some shards, in their order.

    When there are more, what waits first of the keys of the newest of each comes before them: whoever writes now and
    then does not wait for the hundred thousand rows of another.

    Args:
        connection: of the relay that has these shards.
        seen: by its last claim; what it has marked and refused since then is committed. None where nothing can be
            remembered (`remembers`).
        shards: which.
        blocked: keys whose rows are left out.
        most: rows of one shard.
        in_all: rows of all shards; the newest come besides.
    """
    size = BATCH_BYTES // max(len(shards), 1)
    given = {"shards": list(shards), "blocked": list(blocked), "rows": most, "bytes": size, "most": in_all}
    rows, now = _claim_first(connection, given | _since(seen, shards))
    seen = now if seen is not None else None
    if not _has_more(rows, most, size, in_all):
        return Claimed(rows, seen)
    given |= {"rows": max(1, NEWEST * in_all // MOST), "bytes": size // 4}
    first = {row.id for row in rows}
    newest: dict[UUID, Row] = {}
    for columns in _execute(connection, "newest", given | _since(seen, shards)):
        row = Row(*columns)
        newest.setdefault(row.id, row)  # one of several rows of its key
    return Claimed([*(row for row in newest.values() if row.id not in first), *rows], seen)


def _since(seen: Seen | None, shards: Sequence[int]) -> dict[str, Any]:
    snapshot, firsts = seen if seen is not None else Seen()
    return {"snapshot": snapshot, "firsts": [firsts.get(shard, _BEGINNING) for shard in shards]}


def _execute(connection: Connection, statement: str, given: Mapping[str, Any]) -> psycopg.Cursor[Any]:
    return connection.execute(CLAIMS[statement, given["snapshot"] is not None].encode(), given, binary=True)


def _claim_first(connection: Connection, given: Mapping[str, Any]) -> tuple[list[Row], Seen]:
    rows: list[Row] = []
    firsts: dict[int, int] = {}
    snapshot = None
    for *columns, shard, first, now in _execute(connection, "first", given):
        firsts[shard] = _NOTHING if first is None else first
        snapshot = now or snapshot
        if columns[0] is not None:
            rows.append(Row(*columns))
    return rows[: given["most"]], Seen(snapshot, firsts)


def _has_more(rows: Sequence[Row], most: int, size: int, in_all: int) -> bool:
    """Whether a claim has left rows of a shard."""
    if len(rows) >= in_all:
        return True
    of = Counter(row.shard for row in rows)
    return any(count >= most for count in of.values()) or sum(len(row.payload or b"") for row in rows) > size


def remembers(connection: Connection) -> bool:
    """Whether what has come since a claim can be found: not until `migrate` has made the index for it."""
    return connection.execute(_REMEMBERS).fetchone() == (True,)


def mark(connection: Connection, rows: Sequence[Row]) -> None:
    """Note that rows are published."""
    if rows:
        connection.execute(_MARK, ([row.id for row in rows],))


def refuse(connection: Connection, row: Row, error: str, *, park: bool) -> None:
    """Note that a row could not be published, for people; parked, it is not tried again until one of them says so."""
    connection.execute(_REFUSE, (storable(error), park, row.id))


def measure(connection: Connection, seen: Seen | None, shards: Sequence[int]) -> Measured:
    """How many rows of some shards wait, and for how long, as of the last claim's first ones."""
    given = {"shards": list(shards), **_since(seen, shards)}
    return Measured(*(connection.execute(_MEASURE, given).fetchone() or (0, 0, 0.0)))


def prune(connection: Connection) -> bool:
    """Delete what was published more than an hour ago, a thousand rows at most; returns whether there may be more."""
    return connection.execute(_PRUNE, (_PRUNE_ROWS,)).rowcount == _PRUNE_ROWS
