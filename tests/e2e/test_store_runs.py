"""Runs in the real database: how they end, and that they end once."""

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime
from typing import Any
from uuid import UUID, uuid4

import psycopg
import pytest

from offsetzero.store import lanes, run_steps, runs
from offsetzero.store.lanes import Lane
from offsetzero.store.leases import UNLEASED
from offsetzero.store.runs import RunEnd
from offsetzero.store.script import Script, run

Connection = psycopg.Connection[tuple[Any, ...]]


@pytest.fixture
def connection(database_url: str) -> Iterator[Connection]:
    with psycopg.connect(database_url, autocommit=True) as connection:
        yield connection


@pytest.fixture
def run_id(connection: Connection) -> UUID:
    """A queued run with the steps `one` and `two`."""
    made = uuid4()
    run(connection, runs.create(made, "demo", uuid4(), ["one", "two"]))
    return made


def _status(connection: Connection, run_id: UUID) -> str:
    row = connection.execute("SELECT status FROM runs WHERE id = %s", (run_id,)).fetchone()
    assert row is not None
    return str(row[0])


def _steps(connection: Connection, run_id: UUID) -> dict[str, str]:
    return dict(connection.execute("SELECT step, status FROM run_steps WHERE run_id = %s", (run_id,)).fetchall())


def test_a_run_succeeds_when_its_last_step_does(connection: Connection, run_id: UUID) -> None:
    assert run(connection, run_steps.start_step(run_id, "one", 1)) == 1
    assert _status(connection, run_id) == "running"
    assert run(connection, run_steps.succeed_step(run_id, "one")) is None
    end = run(connection, run_steps.succeed_step(run_id, "two", warning="no text"))
    assert isinstance(end, RunEnd)
    assert (end.run_id, end.tenant_id, end.status, end.step) == (run_id, "demo", "succeeded", None)
    assert end.finished_at.utcoffset() is not None
    assert _status(connection, run_id) == "succeeded"
    warnings = connection.execute("SELECT warning FROM run_steps WHERE step = 'two'").fetchone()
    assert warnings == ("no text",)


def test_other_steps_go_on_after_one_failed(connection: Connection, run_id: UUID) -> None:
    assert run(connection, run_steps.fail_step(run_id, "one", reason="corrupt", detail="not \0 readable")) is None
    assert _status(connection, run_id) == "queued"
    assert run(connection, run_steps.start_step(run_id, "two", 1))
    end = run(connection, run_steps.succeed_step(run_id, "two"))
    assert end is not None
    assert (end.status, end.step, end.reason, end.detail) == ("failed", "one", "corrupt", "not � readable")
    assert _steps(connection, run_id) == {"one": "failed", "two": "succeeded"}


def test_the_first_failure_is_the_one_that_is_told(connection: Connection, run_id: UUID) -> None:
    run(connection, run_steps.fail_step(run_id, "two", reason="first", detail=""))
    end = run(connection, run_steps.fail_step(run_id, "one", reason="second", detail=""))
    assert end is not None
    assert (end.step, end.reason) == ("two", "first")


def test_a_waiting_step_says_when_and_why(connection: Connection, run_id: UUID) -> None:
    due = datetime(2030, 1, 1, tzinfo=UTC)
    run(connection, run_steps.start_step(run_id, "one", 1))
    run(connection, run_steps.wait_step(run_id, "one", attempt=1, reason="provider-503", detail="busy", due=due))
    columns = "status, attempts, reason, detail, due"
    row = connection.execute(f"SELECT {columns} FROM run_steps WHERE step = 'one'").fetchone()
    assert row == ("waiting", 1, "provider-503", "busy", due)
    run(connection, run_steps.start_step(run_id, "one", 2))
    row = connection.execute(f"SELECT {columns} FROM run_steps WHERE step = 'one'").fetchone()
    assert row == ("running", 2, None, None, None)


@pytest.mark.parametrize(
    "late",
    [
        lambda run_id: run_steps.start_step(run_id, "one", 2),
        lambda run_id: run_steps.wait_step(run_id, "one", attempt=2, reason="late", detail="", due=None),
        lambda run_id: run_steps.fail_step(run_id, "one", reason="late", detail=""),
        lambda run_id: run_steps.succeed_step(run_id, "one"),
    ],
)
def test_what_has_ended_does_not_change(connection: Connection, run_id: UUID, late: Any) -> None:
    """term-llm#790: a late write overwrote the end."""
    run(connection, run_steps.succeed_step(run_id, "one"))
    run(connection, run_steps.succeed_step(run_id, "two"))
    before = connection.execute("SELECT * FROM run_steps ORDER BY step").fetchall()
    assert run(connection, late(run_id)) in (None, UNLEASED)
    assert connection.execute("SELECT * FROM run_steps ORDER BY step").fetchall() == before
    assert _status(connection, run_id) == "succeeded"


def test_a_cancelled_run_takes_no_more_work(connection: Connection, run_id: UUID) -> None:
    """term-llm#918: a late success overwrote the cancellation."""
    connection.execute("UPDATE runs SET status = 'cancelled' WHERE id = %s", (run_id,))
    assert run(connection, run_steps.start_step(run_id, "one", 1)) is None
    assert run(connection, run_steps.succeed_step(run_id, "one")) is None
    assert run(connection, run_steps.fail_step(run_id, "two", reason="x", detail="")) is None
    assert _steps(connection, run_id) == {"one": "queued", "two": "queued"}


def test_a_later_subscribers_step_holds_nothing_up(connection: Connection, run_id: UUID) -> None:
    assert run(connection, run_steps.start_step(run_id, "audit", 1))
    run(connection, run_steps.succeed_step(run_id, "one"))
    assert run(connection, run_steps.succeed_step(run_id, "two")) is not None, "ended although audit is running"
    assert run(connection, run_steps.fail_step(run_id, "audit", reason="x", detail="")) is None
    assert _status(connection, run_id) == "succeeded"
    assert _steps(connection, run_id)["audit"] == "failed"


def test_an_event_of_no_run_changes_nothing(connection: Connection) -> None:
    nowhere = uuid4()
    assert run(connection, run_steps.start_step(nowhere, "one", 1)) == UNLEASED
    run(connection, run_steps.wait_step(nowhere, "one", attempt=1, reason="x", detail="", due=None))
    assert run(connection, run_steps.succeed_step(nowhere, "one")) is None
    assert run(connection, run_steps.fail_step(nowhere, "one", reason="x", detail="")) is None
    assert connection.execute("SELECT 1 FROM run_steps").fetchall() == []


def test_steps_that_end_at_the_same_time_end_the_run_once(database_url: str, connection: Connection) -> None:
    names = ["a", "b", "c", "d"]
    made = [uuid4() for _ in range(40)]
    for run_id in made:
        run(connection, runs.create(run_id, "demo", uuid4(), names))

    def finish(name: str) -> list[RunEnd]:
        ends = []
        with psycopg.connect(database_url) as mine:
            for run_id in made:
                script: Script[RunEnd | None] = (
                    run_steps.succeed_step(run_id, name)
                    if name != "c"
                    else run_steps.fail_step(run_id, name, reason="x", detail="")
                )
                end = run(mine, script)
                mine.commit()
                ends += [end] if end else []
        return ends

    with ThreadPoolExecutor(4) as threads:
        ends = [end for found in threads.map(finish, names) for end in found]
    assert sorted(end.run_id for end in ends) == sorted(made)
    assert {end.status for end in ends} == {"failed"}


def test_a_run_of_which_a_step_was_cancelled_is_cancelled(connection: Connection, run_id: UUID) -> None:
    assert run(connection, run_steps.cancel_step(run_id, "one", reason="cancelled", detail="")) is None
    assert _status(connection, run_id) == "queued", "its other step goes on"
    end = run(connection, run_steps.succeed_step(run_id, "two"))
    assert end is not None
    assert (end.status, end.step, end.reason) == ("cancelled", None, None)
    assert _steps(connection, run_id) == {"one": "cancelled", "two": "succeeded"}


def test_a_run_that_failed_is_not_cancelled_by_another_step(connection: Connection, run_id: UUID) -> None:
    assert run(connection, run_steps.fail_step(run_id, "one", reason="corrupt", detail="")) is None
    end = run(connection, run_steps.cancel_step(run_id, "two", reason="cancelled", detail=""))
    assert end is not None
    assert (end.status, end.step) == ("failed", "one")
    assert run(connection, run_steps.cancel_step(run_id, "one", reason="cancelled", detail="")) is None
    assert _steps(connection, run_id) == {"one": "failed", "two": "cancelled"}


def test_the_steps_of_a_cancelled_run_end_one_by_one(connection: Connection, run_id: UUID) -> None:
    connection.execute("UPDATE runs SET status = 'cancelled' WHERE id = %s", (run_id,))
    assert run(connection, run_steps.start_step(run_id, "one", 1)) is None
    assert run(connection, run_steps.cancel_step(run_id, "one", reason="cancelled", detail="")) is None
    assert _steps(connection, run_id) == {"one": "cancelled", "two": "queued"}


def test_the_last_run_of_a_document_is_the_one_that_was_added_last_whatever_the_clock_says(
    connection: Connection,
) -> None:
    """The clock of the database was a day ahead when the first one was added; then somebody set it right."""
    document_id = uuid4()
    run(connection, runs.create(uuid4(), "demo", document_id, [], Lane.NORMAL))
    connection.execute("UPDATE runs SET created_at = now() + interval '1 day'")
    run(connection, runs.create(UUID(int=0), "demo", document_id, [], Lane.BULK))
    assert run(connection, lanes.of_last(document_id)) is Lane.BULK
    run(connection, runs.create(uuid4(), "demo", other := uuid4(), []))
    ((at, now),) = connection.execute("SELECT created_at, now() FROM runs WHERE document_id = %s", (other,)).fetchall()
    assert at < now, "of another document nothing is known that comes later"
