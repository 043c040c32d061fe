"""The ledger of dead letters in the real database."""

from collections.abc import Iterator

import psycopg
import pytest

from offsetzero.store import dead_letters
from offsetzero.store.dead_letter_pages import pages
from offsetzero.store.dead_letters import Filter, Status
from offsetzero.store.script import run

Connection = psycopg.Connection[tuple[object, ...]]


@pytest.fixture
def connection(database_url: str) -> Iterator[Connection]:
    """With 600 dead letters of two groups, six at a time, and every third one discarded."""
    with psycopg.connect(database_url, autocommit=True) as connection:
        connection.execute("DELETE FROM dead_letter_decisions")
        connection.execute("DELETE FROM dead_letters")
        connection.execute(
            "INSERT INTO dead_letters SELECT 'T' || n % 2, n % 3, n / 6, 'g' || n % 2, "
            "timestamptz '2025-01-01Z' + n / 6 * interval '1 s', 's', 'e' || n, 0, NULL, NULL, NULL, NULL, "
            "'bug', '', '', '', 1, 'S', 'documents', n % 3, n FROM generate_series(0, 599) AS n"
        )
        action = "00000000-0000-7000-8000-000000000001"
        connection.execute(
            "INSERT INTO dead_letter_actions (id, kind, group_name, who, why, chosen) "
            "VALUES (%s, 'discard', 'g0', '', '', '') ON CONFLICT DO NOTHING",
            (action,),
        )
        connection.execute(
            "INSERT INTO dead_letter_decisions SELECT topic_id, partition, place, %s, 1, now() FROM dead_letters "
            "WHERE place %% 3 = 0",
            (action,),
        )
        yield connection


@pytest.mark.parametrize("which", [Filter(), Filter(groups=["g1"]), Filter(status=Status.OPEN)])
@pytest.mark.parametrize("size", [1, 7, 100, 1000])
def test_pages_have_each_dead_letter_once_and_in_order(connection: Connection, which: Filter, size: int) -> None:
    found = list(pages(connection, which, size))
    assert [one for page in found for one in page] == run(connection, dead_letters.find(which))
    assert [len(page) for page in found[:-1]] == [size] * (len(found) - 1)


def test_what_is_decided_while_pages_are_read_hides_no_other(connection: Connection) -> None:
    seen = []
    for page in pages(connection, Filter(status=Status.OPEN), 50):
        seen += [one.at for one in page]
        connection.execute(
            "INSERT INTO dead_letter_decisions SELECT topic_id, partition, place, %s, 1, now() FROM unnest("
            "%s::text[], %s::int[], %s::bigint[]) AS d (topic_id, partition, place)",
            ("00000000-0000-7000-8000-000000000001", *([one.at[part] for one in page] for part in range(3))),
        )
    assert len(seen) == len(set(seen)) == 396
