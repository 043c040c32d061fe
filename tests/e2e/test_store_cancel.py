"""Cancelled runs in the real database: what has ended stays ended, whoever is late."""

import os
import random
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from threading import Barrier
from typing import Any
from uuid import UUID, uuid4

import psycopg
import pytest

from offsetzero.store import run_steps, run_views, runs
from offsetzero.store.run_states import RUN_CHANGES, STEP_CHANGES
from offsetzero.store.runs import RunEnd
from offsetzero.store.script import Script, run

Connection = psycopg.Connection[tuple[Any, ...]]
RACES = 10_000 if os.environ.get("OZ_TEST_PROFILE") == "nightly" else 250
_WATCH = """
CREATE TABLE changes (kind text, before text, after text);
CREATE FUNCTION watch() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN
    INSERT INTO changes VALUES (TG_ARGV[0], OLD.status, NEW.status); RETURN NULL; END $$;
CREATE TRIGGER watch AFTER UPDATE OF status ON runs FOR EACH ROW EXECUTE FUNCTION watch('run');
CREATE TRIGGER watch AFTER UPDATE OF status ON run_steps FOR EACH ROW EXECUTE FUNCTION watch('step');
"""
LEGAL = {
    (kind, before.value, change.after.value)
    for kind, changes in (("run", RUN_CHANGES), ("step", STEP_CHANGES))
    for change in changes  # type: ignore[attr-defined]
    for before in change.before
}


@pytest.fixture
def connection(database_url: str) -> Iterator[Connection]:
    with psycopg.connect(database_url, autocommit=True) as connection:
        connection.execute(_WATCH)
        yield connection
        changes = set(connection.execute("SELECT DISTINCT kind, before, after FROM changes").fetchall())
        assert changes <= LEGAL, "no other change than those of the table"


def _made(connection: Connection) -> UUID:
    made = uuid4()
    run(connection, runs.create(made, "demo", uuid4(), ["one", "two"]))
    return made


def _steps(connection: Connection, run_id: UUID) -> dict[str, str]:
    return dict(connection.execute("SELECT step, status FROM run_steps WHERE run_id = %s", (run_id,)).fetchall())


def test_a_cancelled_run_stays_so_whoever_is_late(connection: Connection) -> None:
    """term-llm#790: a late success overwrote the cancellation."""
    run_id = _made(connection)
    run(connection, run_steps.start_step(run_id, "one", 1))
    run(connection, run_steps.start_step(run_id, "audit", 1))
    assert run(connection, runs.cancel("other", run_id)) is None, "of another tenant there is none"
    end = run(connection, runs.cancel("demo", run_id))
    assert isinstance(end, RunEnd)
    assert (end.run_id, end.tenant_id, end.status, end.step) == (run_id, "demo", "cancelled", None)
    assert _steps(connection, run_id) == dict.fromkeys(("one", "two", "audit"), "cancelled")
    before = run(connection, run_views.find("demo", run_id))
    late: list[Script[Any]] = [
        runs.cancel("demo", run_id),
        run_steps.start_step(run_id, "two", 1),
        run_steps.wait_step(run_id, "one", attempt=1, reason="late", detail="", due=None),
        run_steps.succeed_step(run_id, "one"),
        run_steps.succeed_step(run_id, "two"),
        run_steps.fail_step(run_id, "audit", reason="late", detail=""),
        run_steps.cancel_step(run_id, "two", reason="late", detail=""),
        runs.requeue_steps([(run_id, "one"), (run_id, "two")]),
    ]
    for script in late:
        assert not run(connection, script)
    assert run(connection, run_views.find("demo", run_id)) == before


@pytest.mark.parametrize("end", ["succeeded", "failed"])
def test_what_has_ended_is_not_cancelled(connection: Connection, end: str) -> None:
    run_id = _made(connection)
    run(connection, run_steps.succeed_step(run_id, "one"))
    last = run_steps.succeed_step(run_id, "two")
    run(connection, last if end == "succeeded" else run_steps.fail_step(run_id, "two", reason="x", detail=""))
    assert run(connection, runs.cancel("demo", run_id)) is None
    assert _steps(connection, run_id) == {"one": "succeeded", "two": end}


def test_tokens_are_counted_over_attempts_and_after_the_end(connection: Connection) -> None:
    run_id = _made(connection)
    run(connection, run_steps.start_step(run_id, "one", 1))
    run(connection, runs.spend(run_id, "one", 12, 3))
    run(connection, run_steps.wait_step(run_id, "one", attempt=1, reason="x", detail="", due=None))
    run(connection, runs.spend(run_id, "one", 12, 0))
    run(connection, runs.cancel("demo", run_id))
    run(connection, runs.spend(run_id, "one", 12, 4))
    view = run(connection, run_views.find("demo", run_id))
    assert view is not None
    assert [(step.step, step.status, step.input_tokens, step.output_tokens) for step in view.steps] == [
        ("one", "cancelled", 36, 7),
        ("two", "cancelled", None, None),
    ]


def test_of_cancel_and_complete_one_ends_a_run(database_url: str, connection: Connection) -> None:
    """term-llm#918, #790: `make races` has 10,000 of them."""
    made = [_made(connection) for _ in range(RACES)]
    dice = random.Random(int(os.environ.get("OZ_TEST_SEED", "0")))
    ahead = [dice.randrange(-3, 4) for _ in made]  # statements that one of them is late by
    start = Barrier(2, timeout=60)

    def race(complete: bool) -> list[RunEnd | None]:
        ends = []
        with psycopg.connect(database_url) as mine:
            for run_id, late in zip(made, ahead, strict=True):
                start.wait()
                for _ in range(late if complete else -late):
                    mine.execute("SELECT 1")
                for script in complete_by(run_id) if complete else [runs.cancel("demo", run_id)]:
                    end = run(mine, script)
                    mine.commit()
                ends.append(end)
        return ends

    def complete_by(run_id: UUID) -> list[Script[RunEnd | None]]:
        return [run_steps.succeed_step(run_id, "one"), run_steps.succeed_step(run_id, "two")]

    with ThreadPoolExecutor(2) as threads:
        completed, cancelled = threads.map(race, (True, False))
    found = dict(connection.execute("SELECT id, status FROM runs").fetchall())
    for run_id, whole, cancel in zip(made, completed, cancelled, strict=True):
        assert (whole is None) != (cancel is None), "one of them has ended it"
        assert found[run_id] == ("cancelled" if cancel else "succeeded")
    assert {end is None for end in cancelled} == {True, False}, "it was a race"
