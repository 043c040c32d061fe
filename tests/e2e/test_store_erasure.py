"""Which dead letters an erasure leaves, in the real database."""

from collections.abc import Iterator
from uuid import UUID

import psycopg
import pytest

from offsetzero.store import erasure
from offsetzero.store.database import Connection
from offsetzero.store.erasure import Held
from offsetzero.store.script import run

DOCUMENT, RUN, OTHER = UUID(int=0xD0), UUID(int=0x5A), UUID(int=0xD1)
ACTION = UUID(int=0xAC)


@pytest.fixture
def connection(database_url: str) -> Iterator[Connection]:
    """One transaction, in a database with a run of the document."""
    with psycopg.connect(database_url) as connection:
        connection.execute("INSERT INTO runs (id, tenant_id, document_id) VALUES (%s, 'acme', %s)", (RUN, DOCUMENT))
        connection.execute(
            "INSERT INTO run_steps (run_id, step, status, reason, detail, warning) "
            "VALUES (%s, 'indexer', 'failed', 'corrupt', 'said', 'warned')",
            (RUN,),
        )
        yield connection
        connection.rollback()


def letter(connection: Connection, place: int, key: UUID, kind: str = "document.uploaded", group: str = "g") -> None:
    connection.execute(
        "INSERT INTO dead_letters VALUES ('T', 0, %s, %s, now(), 's', %s, 0, %s, 'acme', NULL, %s, 'bug', 'corrupt', "
        "'said', '', 1, 'S', 'documents', 0, %s)",
        (place, group, f"e{place}", kind, str(key), place),
    )


def hold(connection: Connection, origin: int, group: str = "g", generation: int = 1) -> None:
    connection.execute(
        "INSERT INTO holds (group_name, generation, topic_id, partition, origin, key, redrive_no, hop) "
        "VALUES (%s, %s, 'S', 0, %s, 'k', 0, 1)",
        (group, generation, origin),
    )


def left(connection: Connection) -> dict[int, str]:
    """By place, what is said of the dead letters that are left."""
    return dict(connection.execute("SELECT place, detail FROM dead_letters ORDER BY place").fetchall())


def erase(connection: Connection) -> None:
    run(connection, erasure.erase(DOCUMENT, "acme"))


def test_dead_letters_of_the_document_and_of_its_runs_go_and_no_others(connection: Connection) -> None:
    letter(connection, 1, DOCUMENT)
    letter(connection, 2, RUN, "run.failed")
    letter(connection, 3, OTHER)
    letter(connection, 4, DOCUMENT, "document.deleted")
    erase(connection)
    assert left(connection) == {3: "said", 4: "said"}, "a group that could not erase is for somebody to see to"
    rows = connection.execute("SELECT status, reason, detail, warning FROM run_steps").fetchall()
    assert rows == [("failed", "corrupt", None, None)]


def test_what_holds_up_its_key_stays_without_text_and_is_told(connection: Connection) -> None:
    for place, group in ((1, "g"), (2, "other"), (3, "g.g2")):
        letter(connection, place, DOCUMENT, group=group)
    hold(connection, 1)
    hold(connection, 2)  # of g: it says nothing of the same origin's letter in another group
    hold(connection, 3, generation=2)
    erase(connection)
    assert left(connection) == {1: "", 3: ""}
    assert run(connection, erasure.held(DOCUMENT)) == [Held("g", 0, 1), Held("g.g2", 0, 3)]
    assert run(connection, erasure.held(OTHER)) == []


@pytest.mark.parametrize(("done", "stay"), [("now()", {}), ("NULL", {1: ""})])
def test_what_an_action_is_at_work_on_stays_without_text(connection: Connection, done: str, stay: object) -> None:
    letter(connection, 1, DOCUMENT)
    connection.execute(
        "INSERT INTO dead_letter_actions (id, kind, group_name, who, why, chosen) VALUES (%s, 'edit', 'g', '', '', '')",
        (ACTION,),
    )
    connection.execute(f"INSERT INTO dead_letter_decisions VALUES ('T', 0, 1, %s, 1, {done})".encode(), (ACTION,))
    connection.execute("INSERT INTO dead_letter_edits VALUES (%s, 'T', 0, 1, 'a', 'b')", (ACTION,))
    erase(connection)
    assert left(connection) == stay
    assert connection.execute("SELECT count(*) FROM dead_letter_edits").fetchone() == (0,)
