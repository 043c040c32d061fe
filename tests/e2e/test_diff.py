"""`offsetzero diff`: what differs between two generations, in the real database."""

import json
import threading
from collections.abc import Iterator
from typing import Any

import psycopg
import pytest
from commands import CommandsHere

from offsetzero.consumers.projection import Projection, make_tables
from offsetzero.generation import Generation
from offsetzero.settings import Settings
from offsetzero.store import drops, generations
from offsetzero.store.database import Connection
from offsetzero.store.script import run
from support import wait_until

TABLES = """
CREATE TABLE sizes (tenant text, id int, bytes numeric, note json, made_at timestamptz NOT NULL DEFAULT now(),
                    PRIMARY KEY (tenant, id));
CREATE TABLE seen (name text, number int);
"""


class Generations:
    """Makes generations of the group `sizes`, and compares them."""

    def __init__(self, settings: Settings, connection: Connection, monkeypatch: pytest.MonkeyPatch) -> None:
        self.url = settings.database_url.get_secret_value()
        self.connection = connection
        self.command = CommandsHere(settings, monkeypatch)

    def make(self, number: int, tables: str, *rows: str) -> None:
        with self.connection.transaction():
            make_tables(self.connection, Generation("sizes", number), Projection(tables))
            for row in rows:
                self.connection.execute(f"INSERT INTO {row}".encode())

    def await_lock(self, kind: str) -> None:
        """Wait until somebody waits for a lock."""
        waits = "SELECT 1 FROM pg_locks WHERE NOT granted AND locktype = %s"
        wait_until(lambda: self.connection.execute(waits, (kind,)).fetchone(), what=f"a wait for a lock ({kind})")

    def diff(self, *options: str, status: int = 3) -> list[str]:
        return self.command("diff", "sizes", "1", "2", *options, status=status).stdout.splitlines()

    def json(self, *options: str, status: int = 3) -> list[dict[str, Any]]:
        return [json.loads(line) for line in self.diff("--json", *options, status=status)]


@pytest.fixture
def made(settings: Settings, monkeypatch: pytest.MonkeyPatch) -> Iterator[Generations]:
    with psycopg.connect(settings.database_url.get_secret_value(), autocommit=True) as connection:
        yield Generations(settings, connection, monkeypatch)


def test_rows_are_told_apart_by_primary_key_and_by_the_columns_that_differ(made: Generations) -> None:
    same = "sizes VALUES ('acme', 1, 1.50, '{\"a\": 1}', '2026-01-01')"
    made.make(1, TABLES, same, "sizes VALUES ('acme', 2, 5, NULL)", "sizes VALUES ('b', 1, 7, '[]')")
    later = same.replace("2026-01-01", "2026-02-02")
    made.make(2, TABLES, later, "sizes VALUES ('acme', 3, 0.1)", "sizes VALUES ('b', 1, NULL, '[1]')")
    assert made.diff() == [
        "seen: 0 rows only in 1, 0 only in 2, 0 the same; compared as whole rows, without a primary key",
        "sizes: 1 row only in 1, 1 only in 2, 1 changed, 1 the same; not compared: made_at",
        "  - tenant=acme id=2 bytes=5 note=null",
        "  + tenant=acme id=3 bytes=0.1 note=null",
        "  ~ tenant=b id=1  bytes: 7 → null, note: [] → [1]",
    ]
    assert made.json()[1:] == [
        {
            "table": "sizes",
            "change": "only in the old",
            "key": {"tenant": "acme", "id": 2},
            "old": {"bytes": 5, "note": None},
        },
        {
            "table": "sizes",
            "change": "only in the new",
            "key": {"tenant": "acme", "id": 3},
            "new": {"bytes": 0.1, "note": None},
        },
        {
            "table": "sizes",
            "change": "changed",
            "key": {"tenant": "b", "id": 1},
            "old": {"bytes": 7, "note": []},
            "new": {"bytes": None, "note": [1]},
        },
        {
            "summary": {
                "table": "sizes",
                "only_in_the_old": 1,
                "only_in_the_new": 1,
                "changed": 1,
                "same": 1,
                "key": ["tenant", "id"],
                "left_out": ["made_at"],
                "columns_only_in_the_old": [],
                "columns_only_in_the_new": [],
                "table_is": "in both",
            }
        },
    ]


def test_equal_ones_end_with_0_and_times_of_making_count_only_where_they_are_asked_for(made: Generations) -> None:
    made.make(1, TABLES, "sizes VALUES ('acme', 1)", "seen VALUES ('a', 1), (NULL, NULL)")
    made.make(2, TABLES, "sizes VALUES ('acme', 1)", "seen VALUES (NULL, NULL), ('a', 1)")
    assert made.diff(status=0)[0].startswith("seen: 0 rows only in 1, 0 only in 2, 2 the same")
    assert [one["summary"]["same"] for one in made.json(status=0)] == [2, 1]
    changed = made.diff("--made-at")
    assert "1 changed" in changed[1]
    assert changed[2].startswith("  ~ tenant=acme id=1  made_at: 20")
    made.diff("--made-at", "--except", "made_at", status=0)


def test_without_a_primary_key_rows_are_compared_as_bags(made: Generations) -> None:
    made.make(1, TABLES, "seen VALUES ('a', 1), ('a', 1), ('a', 1), ('b', 2), (NULL, 3)")
    made.make(2, TABLES, "seen VALUES ('a', 1), ('b', 3), (NULL, 3)")
    assert made.diff()[:4] == [
        "seen: 3 rows only in 1, 1 only in 2, 2 the same; compared as whole rows, without a primary key",
        "  - name=a number=1  (2 times)",
        "  - name=b number=2",
        "  + name=b number=3",
    ]
    assert made.json()[0] == {
        "table": "seen",
        "change": "only in the old",
        "count": 2,
        "old": {"name": "a", "number": 1},
    }
    assert made.diff("--except", "number")[:2] == [
        "seen: 2 rows only in 1, 0 only in 2, 3 the same; compared as whole rows, without a primary key;"
        " not compared: number",
        "  - name=a  (2 times)",
    ]
    nothing = made.diff("--except", "number", "--except", "name")
    assert nothing[0].startswith("seen: 2 rows only in 1, 0 only in 2, 3 the same")


def test_a_key_that_is_not_compared_leaves_whole_rows(made: Generations) -> None:
    tables = "CREATE TABLE t (id int GENERATED ALWAYS AS IDENTITY PRIMARY KEY, name text)"
    made.make(1, tables, "t (name) VALUES ('a'), ('b')")
    made.make(2, tables, "t (name) VALUES ('b'), ('a')")
    assert "2 changed" in made.diff()[0]
    assert "2 the same" in made.diff("--except", "id", status=0)[0]


def test_other_tables_columns_and_types_are_compared_as_far_as_both_have_them(made: Generations) -> None:
    made.make(
        1,
        "CREATE TYPE kind AS ENUM ('x', 'y'); CREATE TABLE old_one (a int);"
        ' CREATE TABLE t (id int PRIMARY KEY, kind kind, code varchar(9) COLLATE "C", place point,'
        " plain boolean, gone int)",
        "t VALUES (1, 'x', '5', '(1,2)', NULL, 1), (2, 'y', '6', '(1,2)', NULL, 2)",
        "old_one VALUES (1), (2)",
    )
    made.make(
        2,
        "CREATE TYPE kind AS ENUM ('y', 'x'); CREATE TABLE new_one (a int);"
        ' CREATE TABLE t (id bigint PRIMARY KEY, kind kind, code integer, place point, plain date, "added %" int)',
        "t VALUES (1, 'x', 5, '(1,2)', NULL, 7), (2, 'x', 6, '(1,3)', NULL, 7)",
    )
    assert made.diff() == [
        "new_one: a table of generation 2 alone, with 0 rows",
        "old_one: a table of generation 1 alone, with 2 rows",
        "t: 0 rows only in 1, 0 only in 2, 1 changed, 1 the same; only in 1, not compared: gone; only in 2, not"
        " compared: added %",
        "  ~ id=2  kind: y → x, place: (1,2) → (1,3)",
    ]


def test_a_table_of_keys_alone_and_names_that_must_be_quoted(made: Generations) -> None:
    tables = 'CREATE TABLE "the %s ""rows""" ("a key" text PRIMARY KEY)'
    made.make(1, tables, '"the %s ""rows""" VALUES (\'a\'), (E\'b\\nc\')')
    made.make(2, tables, '"the %s ""rows""" VALUES (\'a\')')
    assert made.diff() == [
        'the %s "rows": 1 row only in 1, 0 only in 2, 0 changed, 1 the same',
        r"  - a key=b\nc",
    ]
    assert made.json()[0]["key"] == {"a key": "b\nc"}


def test_only_so_many_rows_are_shown_and_json_has_all(made: Generations) -> None:
    tables = "CREATE TABLE t (id int PRIMARY KEY, text text)"
    made.make(1, tables)
    made.make(2, tables, "t SELECT n, repeat('long ', 100) FROM generate_series(1, 2500) n")
    shown = made.diff()
    assert len(shown) == 1 + 20 + 1
    assert shown[1] == "  + id=1 text=" + ("long " * 100)[:59] + "…"
    assert shown[-1] == "  … more with --limit, or all with --json"
    assert len(made.diff("--limit", "2500")) == 2501
    assert len(made.diff("--limit", "0")) == 2
    assert [one["key"]["id"] for one in made.json()[:-1]] == list(range(1, 2501))


def test_both_are_seen_at_one_moment_and_a_drop_waits(made: Generations) -> None:
    tables = "CREATE TABLE t (id int PRIMARY KEY)"
    made.make(1, tables, "t VALUES (1)")
    made.make(2, tables, "t VALUES (1)")
    with psycopg.connect(made.url) as dropper, psycopg.connect(made.url) as writer:
        writer.execute("LOCK TABLE sizes_g1.t, sizes_g2.t IN ACCESS EXCLUSIVE MODE")
        command = made.command.in_process_of_its_own.start("diff", "sizes", "1", "2")
        made.await_lock("relation")
        done = threading.Thread(target=lambda: run(dropper, drops.drop(Generation("sizes", 2), 20.0)))
        done.start()
        made.await_lock("advisory")
        writer.execute("INSERT INTO sizes_g1.t VALUES (2)")
        writer.commit()
        said = command.communicate(timeout=60)
        done.join(30)
        dropper.commit()
    assert (command.returncode, said) == (0, ("t: 0 rows only in 1, 0 only in 2, 0 changed, 1 the same\n", ""))
    refused = made.command("diff", "sizes", "1", "2", status=1).stderr
    assert "group sizes: there is no generation 2; there is 1" in refused


def test_who_drops_a_generation_hears_that_somebody_reads_it(made: Generations) -> None:
    """Otherwise `rebuild --prune` stands still without a word for as long as a comparison takes."""
    made.make(1, "CREATE TABLE t (id int PRIMARY KEY)")
    made.make(2, "CREATE TABLE t (id int PRIMARY KEY)")
    with psycopg.connect(made.url, autocommit=True) as reader, psycopg.connect(made.url) as dropper:
        run(reader, generations.keep(Generation("sizes", 2)))
        dropper.execute("SET statement_timeout = '5s'")
        with pytest.raises(psycopg.errors.LockNotAvailable):
            run(dropper, drops.drop(Generation("sizes", 2), 0.2))


def test_bad_input_is_one_clear_error(made: Generations) -> None:
    made.make(1, TABLES)
    made.make(2, TABLES)
    said = made.command("diff", "nobody", "1", "2", status=1).stderr
    assert "group nobody: it has no generations in this database; groups that have: indexer, sizes" in said
    said = made.command("diff", "sizes", "0", "before", status=1).stderr
    assert "there is no generation 0; there are 1, 2" in said
    assert "there is no generation before; there are 1, 2" in said
    said = made.command("diff", "sizes", "1", "2", "--except", "nme", status=1).stderr
    assert "--except nme: no table has such a column; there are bytes, id, made_at, name, note, number, tenant" in said
