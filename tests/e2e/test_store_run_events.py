"""The events of runs in the real database: one for each change, numbered in the order of commits."""

from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime
from typing import Any
from uuid import UUID, uuid4

import psycopg
import pytest

from offsetzero.store import erasure, run_events, run_steps, runs
from offsetzero.store.script import run

Connection = psycopg.Connection[tuple[Any, ...]]


def _made(connection: Connection, *steps: str, document_id: UUID | None = None) -> UUID:
    run_id = uuid4()
    run(connection, runs.create(run_id, "demo", document_id or uuid4(), steps or ("one", "two")))
    return run_id


def _told(connection: Connection, run_id: UUID) -> list[tuple[int, str, str, str]]:
    since = run(connection, run_events.since("demo", run_id, None))
    assert since is not None
    return [(event.number, event.kind, event.state.get("step", ""), event.state["status"]) for event in since.events]


def test_each_change_is_an_event_and_nothing_else_is(database_url: str) -> None:
    with psycopg.connect(database_url, autocommit=True) as connection:
        run_id = _made(connection)
        with connection.transaction():
            run(connection, run_steps.start_step(run_id, "one", 1))
        run(connection, run_steps.start_step(run_id, "one", 1))  # the record came twice
        run(connection, run_steps.wait_step(run_id, "one", attempt=1, reason="slow", detail="It is.", due=None))
        with connection.transaction(force_rollback=True):
            run(connection, run_steps.succeed_step(run_id, "two"))
        run(connection, run_steps.fail_step(run_id, "one", reason="corrupt", detail="It cannot be read."))
        run(connection, run_steps.succeed_step(run_id, "two"))
        run(connection, run_steps.succeed_step(run_id, "two"))  # once more
        with connection.transaction():
            run(connection, runs.lock_all([run_id]))
            run(connection, runs.requeue_steps([(run_id, "one")]))
        told = _told(connection, run_id)
        assert [number for number, *_ in told] == list(range(1, 12))
        assert sorted(told[:3]) == sorted(told[:3], key=lambda event: event[0])
        assert {event[1:] for event in told[:3]} == {
            ("run", "", "queued"),
            ("step", "one", "queued"),
            ("step", "two", "queued"),
        }
        assert [event[1:] for event in told[3:9]] == [
            ("step", "one", "running"),
            ("run", "", "running"),
            ("step", "one", "waiting"),
            ("step", "one", "failed"),
            ("step", "two", "succeeded"),
            ("run", "", "failed"),
        ]
        assert {event[1:] for event in told[9:]} == {("step", "one", "queued"), ("run", "", "queued")}


def test_numbers_have_no_hole_when_many_change_one_run(database_url: str) -> None:
    """watermill#311: what is numbered before it is committed is passed over by who reads meanwhile."""
    steps = [f"step-{number}" for number in range(6)]
    with psycopg.connect(database_url, autocommit=True) as reader:
        run_id = _made(reader, *steps)
        seen = [event[0] for event in _told(reader, run_id)]

        def work(step: str) -> None:
            with psycopg.connect(database_url) as connection:
                for attempt in range(1, 21):
                    run(connection, run_steps.start_step(run_id, step, attempt))
                    connection.commit()

        with ThreadPoolExecutor(len(steps)) as pool:
            works = [pool.submit(work, step) for step in steps]
            while not all(done.done() for done in works):
                since = run(reader, run_events.since("demo", run_id, seen[-1]))
                assert since is not None
                seen += [event.number for event in since.events]
        [done.result() for done in works]
        since = run(reader, run_events.since("demo", run_id, seen[-1]))
        assert since is not None
        seen += [event.number for event in since.events]
        assert seen == list(range(1, 1 + 7 + 120 + 1))


@pytest.mark.parametrize("after", [0, 1, 2, 99, -1])
def test_who_is_too_far_behind_or_ahead_is_told_how_the_run_is(database_url: str, after: int) -> None:
    with psycopg.connect(database_url, autocommit=True) as connection:
        run_id = _made(connection)
        connection.execute("DELETE FROM run_events WHERE run_id = %s AND number < 4", (run_id,))
        run(connection, run_steps.start_step(run_id, "one", 1))
        since = run(connection, run_events.since("demo", run_id, after))
        assert since is not None
        assert (since.last, since.over, since.events) == (5, False, ())
        assert since.snapshot is not None
        assert since.snapshot.status == "running"
        since = run(connection, run_events.since("demo", run_id, 3))
        assert since is not None
        assert [event.number for event in since.events] == [4, 5]
        assert run(connection, run_events.since("other", run_id, None)) is None


def test_a_run_of_before_there_were_events_is_told_as_it_is(database_url: str) -> None:
    with psycopg.connect(database_url, autocommit=True) as connection:
        run_id = _made(connection)
        connection.execute("DELETE FROM run_events")
        connection.execute("UPDATE runs SET last_event = 0")
        since = run(connection, run_events.since("demo", run_id, None))
        assert since is not None
        assert since.snapshot is not None
        again = run(connection, run_events.since("demo", run_id, since.last))
        assert again is not None
        assert again.is_nothing


def test_old_events_are_deleted(database_url: str) -> None:
    with psycopg.connect(database_url, autocommit=True) as connection:
        run_id = _made(connection)
        connection.execute("UPDATE run_events SET at = at - interval '1 hour' WHERE number < 3")
        assert run(connection, run_events.trim(3700)) is False
        assert len(_told(connection, run_id)) == 3
        assert run(connection, run_events.trim(3500)) is False
        assert connection.execute("SELECT number FROM run_events").fetchall() == [(3,)]


def test_what_is_erased_is_in_no_event(database_url: str) -> None:
    document_id = uuid4()
    with psycopg.connect(database_url) as connection:
        run_id = _made(connection, document_id=document_id)
        due = datetime(2025, 1, 1, tzinfo=UTC)
        run(connection, run_steps.wait_step(run_id, "one", attempt=1, reason="slow", detail="Dear Mrs. Smith", due=due))
        assert "Smith" in str(connection.execute("SELECT state FROM run_events").fetchall())
        run(connection, erasure.erase(document_id, "demo"))
        assert "Smith" not in str(connection.execute("SELECT state FROM run_events").fetchall())
        assert run(connection, run_events.since("demo", run_id, 4)) is not None
