"""What a relay claims: the first rows that wait, whatever it has seen before, and what that costs."""

import json
import random
import secrets
from collections.abc import Iterator
from contextlib import ExitStack
from datetime import UTC, datetime
from uuid import UUID, uuid4

import psycopg
import pytest
from kafka.relayed import BACKLOG

from offsetzero.producers import claims, outbox, relay
from offsetzero.producers.claims import Seen, claim
from offsetzero.producers.rows import Row
from offsetzero.producers.waves import LEAST, MOST
from offsetzero.schemas.documents import DocumentDeleted
from offsetzero.store import outbox as store
from offsetzero.store.script import run

ALL = range(store.SHARDS)
AGAIN = "UPDATE outbox SET published_at = NULL WHERE id = ANY (%s)"
MOVE = "UPDATE outbox SET aggregateid = %s WHERE id = %s AND published_at IS NULL"


def _deleted(document_id: UUID | None = None) -> DocumentDeleted:
    return DocumentDeleted(document_id=document_id or uuid4(), tenant_id="t", deleted_at=datetime.now(UTC))


@pytest.fixture
def connection(database_url: str) -> Iterator[psycopg.Connection]:
    with psycopg.connect(database_url, autocommit=True) as opened:
        opened.execute(relay._SESSION)
        yield opened


def _statements(seen: Seen) -> list[str]:
    has_seen = seen.snapshot is not None
    return [claims.CLAIMS["first", has_seen], claims.CLAIMS["newest", has_seen], claims._MEASURE]


def _ids(rows: list[Row]) -> list[UUID]:
    return [row.id for row in rows]


class Service:
    """A session that writes events: in transactions of any length, some of them in savepoints, some given up."""

    def __init__(self, connection: psycopg.Connection, dice: random.Random) -> None:
        self._connection = connection
        self._dice = dice
        self.keys: set[UUID] = set()
        """Of which it has written in a transaction that has not ended: nobody else writes of these."""

    def go_on(self, free: list[UUID]) -> None:
        """Write something more, or end."""
        if self.keys and self._dice.random() < 0.4:
            self.end()
            return
        for _ in range(self._dice.randint(1, 4)):
            self.keys.add(key := self._dice.choice([*free, *self.keys]))
            if (kind := self._dice.random()) < 0.2:
                with self._connection.transaction():
                    outbox.add(self._connection, _deleted(key))
            elif kind < 0.3:
                with self._connection.transaction() as part:
                    outbox.add(self._connection, _deleted(key))
                    raise psycopg.Rollback(part)
            else:
                outbox.add(self._connection, _deleted(key))

    def end(self) -> None:
        """Commit, as most do."""
        if self._dice.random() < 0.9:
            self._connection.commit()
        else:
            self._connection.rollback()
        self.keys.clear()


def test_what_was_seen_before_hides_nothing_that_waits(connection: psycopg.Connection, database_url: str) -> None:
    """Each claim, beside one that has seen nothing, whatever sessions, operators and people with SQL do meanwhile."""
    seed = secrets.randbelow(10**6)
    dice = random.Random(seed)
    keys = [uuid4() for _ in range(60)]
    published: list[UUID] = []
    claimed = beginnings = 0
    seen = Seen()
    with ExitStack() as stack:
        opened = [stack.enter_context(psycopg.connect(database_url)) for _ in range(8)]
        services = [Service(one, dice) for one in opened]
        long = services.pop()
        long.go_on(keys[:1])
        for step in range(400):
            taken = set().union(*(service.keys for service in [*services, long]))
            dice.choice(services).go_on([key for key in keys if key not in taken])
            if step == 300:
                long.end()
            shards = sorted(dice.sample(ALL, dice.choice((0, 20, 32, 32, 32))))
            blocked = [str(key) for key in dice.sample(keys, dice.choice((0, 0, 5)))]
            most, in_all = dice.choice(((1, 40), (2, 64), (50, 1_000)))
            everything = claim(connection, Seen(), shards, blocked, most, in_all)
            found, seen = claim(connection, seen, shards, blocked, most, in_all)
            assert seen is not None
            assert everything.seen is not None
            assert _ids(found) == _ids(everything.rows), (seed, step)
            assert seen.firsts == everything.seen.firsts, (seed, step)
            assert claims.measure(connection, seen, shards)[:2] == claims.measure(connection, Seen(), shards)[:2]
            claimed += len(found)
            beginnings += sum(first > 1 for first in seen.firsts.values())
            begun = {row.key: row for row in reversed(found)}
            for row in begun.values():  # the first of each key, as a wave has it
                if (end := dice.random()) < 0.7:
                    claims.mark(connection, [row])
                    published.append(row.id)
                elif end < 0.8:
                    claims.refuse(connection, row, "said no", park=end < 0.75)
            if dice.random() < 0.1:
                run(connection, store.retry(None))
            if published and dice.random() < 0.05:
                connection.execute(AGAIN, ([dice.choice(published)],))  # by hand
            if begun and dice.random() < 0.1:
                connection.execute(MOVE, (str(dice.choice(keys)), dice.choice([*begun.values()]).id))
    assert claimed > 300
    assert beginnings > 300


def test_an_id_of_another_transaction_is_nobodys(connection: psycopg.Connection) -> None:
    """A restore's, or a replica's: the next row of its key would go first."""
    _, seen = claim(connection, Seen(), ALL, [], MOST)
    one, other = _deleted(key := uuid4()), _deleted(key)
    for event, xid in ((one, "3"), (other, "9999999")):
        outbox.add(connection, event)
        moved = "WITH gone AS (DELETE FROM outbox RETURNING *) SELECT id, aggregateid, type, payload, headers FROM gone"
        columns = connection.execute(moved).fetchone()
        assert columns is not None
        connection.execute(
            "INSERT INTO outbox (id, aggregateid, type, payload, headers, aggregatetype, xid)"
            " VALUES (%s, %s, %s, %s, %s, 'document', %s::text::xid8)",
            (*columns[:4], json.dumps(columns[4]), xid),
        )
        found, seen = claim(connection, seen, ALL, [], MOST)
        assert _ids(found) == [columns[0]]
        claims.mark(connection, found)
        connection.execute("DELETE FROM outbox")


def test_a_row_that_is_put_before_all_others_is_claimed_first(connection: psycopg.Connection) -> None:
    later, first = outbox.add(connection, _deleted()), outbox.add(connection, _deleted())
    connection.execute("ALTER TABLE outbox ALTER COLUMN number SET GENERATED BY DEFAULT")
    connection.execute("UPDATE outbox SET number = -5 WHERE id = %s", (first,))
    assert _ids(claim(connection, Seen(), ALL, [], MOST).rows) == [first, later]


def test_without_its_index_what_has_come_is_not_looked_for(connection: psycopg.Connection) -> None:
    """A migration that is not through, because somebody's transaction is open: claims are as they were before."""
    assert claims.remembers(connection)
    connection.execute("DROP INDEX ix_outbox_come")
    assert not claims.remembers(connection)
    connection.execute(BACKLOG, (MOST,))
    for _ in range(2):
        found, seen = claim(connection, None, ALL, [], 2)
        assert found
        assert seen is None


def test_a_quiet_writer_with_several_rows_of_a_key_does_not_wait_for_the_backlog(
    connection: psycopg.Connection,
) -> None:
    connection.execute(BACKLOG, (4 * MOST,))
    with connection.transaction():
        ids = [outbox.add(connection, _deleted(key)) for key in [uuid4()] * 3]
    seen = Seen()
    for one in ids:
        found, seen = claim(connection, seen, ALL, [], 2, in_all=LEAST)
        assert [row.id for row in found if row.id in ids] == [one]
        claims.mark(connection, [row for row in found if row.id == one])


def test_rows_of_before_their_transactions_were_known_are_claimed(connection: psycopg.Connection) -> None:
    old = outbox.add(connection, _deleted())
    connection.execute("UPDATE outbox SET xid = NULL")
    found, seen = claim(connection, Seen(), ALL, [], MOST)
    new = outbox.add(connection, _deleted())
    assert _ids(found) == [old]
    assert set(_ids(claim(connection, seen, ALL, [], MOST).rows)) == {old, new}


def test_what_is_published_behind_an_open_transaction_costs_nothing(
    connection: psycopg.Connection, database_url: str
) -> None:
    """Each claim went past all of it, a second for each million, for as long as anybody's transaction stayed open."""

    def read(seen: Seen, *statements: str) -> int:
        given = {"shards": list(ALL), "blocked": [], "rows": 31, "bytes": 10**6, "most": MOST}
        given |= claims._since(seen, ALL)
        found = 0
        for statement in statements:
            row = connection.execute(f"EXPLAIN (ANALYZE, FORMAT JSON) {statement}".encode(), given).fetchone()
            assert row is not None
            plan = row[0][0]["Plan"]
            found += plan["Shared Hit Blocks"] + plan["Shared Read Blocks"]
        return found

    with psycopg.connect(database_url) as long:
        outbox.add(long, _deleted())  # which stays the first of its shard
        connection.execute(BACKLOG, (count := 20_000,))
        _, seen = claim(connection, Seen(), ALL, [], MOST)
        connection.execute("UPDATE outbox SET published_at = now()")
        with psycopg.connect(database_url) as late:  # it takes its number before those of others, and commits later
            last = outbox.add(late, _deleted())
            others = [outbox.add(connection, _deleted()) for _ in range(5)]
            found, seen = claim(connection, seen, ALL, [], MOST)
            assert set(_ids(found)) == set(others)
        assert read(Seen(), *_statements(Seen())) > count
        assert read(seen, *_statements(seen)) < count / 10
        claims.mark(connection, found)
        found, seen = claim(connection, seen, ALL, [], MOST)
        assert _ids(found) == [last]
        long.commit()
    assert len(claim(connection, seen, ALL, [], MOST).rows) == 2


def test_a_new_row_is_claimed_before_the_backlog_of_others_but_not_before_its_own_key(
    connection: psycopg.Connection,
) -> None:
    old, oldest, quiet = uuid4(), uuid4(), _deleted()
    outbox.add(connection, _deleted(oldest))
    connection.execute(BACKLOG, (4 * MOST,))
    for event in (_deleted(old), _deleted(old), quiet, _deleted(oldest)):
        outbox.add(connection, event)
    connection.execute(BACKLOG, (1,))
    for most in (MOST // store.SHARDS, MOST):  # as in a backlog, and as after a time with little to do
        rows = claim(connection, Seen(), ALL, [], most).rows
        keys = [row.key for row in rows]
        assert len(rows) <= MOST + claims.NEWEST * store.SHARDS
        assert len({row.id for row in rows}) == len(rows)
        assert keys.index(quiet.key) < claims.NEWEST * store.SHARDS
        assert keys.count(str(old)) == 1  # its first row, which nothing of its key precedes
        first, second = connection.execute(
            "SELECT id FROM outbox WHERE aggregateid = %s ORDER BY number", (str(old),)
        ).fetchall()
        assert first[0] in {row.id for row in rows}
        assert second[0] not in {row.id for row in rows}
        assert keys.count(str(oldest)) == 1
        assert keys.index(str(oldest)) >= keys.index(quiet.key)
    few = claim(connection, Seen(), ALL, [], 2, in_all=LEAST).rows  # as while others write, too
    assert [row.key for row in few].index(quiet.key) < store.SHARDS
    assert len(few) <= LEAST + store.SHARDS
    refused = claim(connection, Seen(), ALL, [quiet.key], most).rows
    assert quiet.key not in [row.key for row in refused]


@pytest.mark.parametrize("seen", [Seen(), Seen("700:700:", dict.fromkeys(ALL, 1))], ids=["all", "since"])
def test_a_claim_goes_along_the_order_of_its_shards(connection: psycopg.Connection, seen: Seen) -> None:
    """Whatever is known of the table: it is analyzed while it is empty, and full a moment later."""
    connection.execute("VACUUM ANALYZE outbox")
    connection.execute(BACKLOG, (2_000,))
    given = {"shards": list(ALL), "blocked": ["k"], "rows": 4, "bytes": 1_000_000, "most": 1_000}
    given |= claims._since(seen, ALL)
    for statement in _statements(seen):
        plan = [row[0] for row in connection.execute(f"EXPLAIN {statement}".encode(), given)]
        assert [line for line in plan if "ix_outbox_waiting_by_shard on outbox o" in line], plan
        assert len([line for line in plan if "Sort Key" in line]) <= 2, plan  # of what has come, and the shards give
        assert not [line for line in plan if "Seq Scan" in line or "Bitmap" in line], plan
