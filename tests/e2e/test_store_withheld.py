"""What a generation withholds and then owes, in the real database: once over all generations."""

import threading
from collections.abc import Iterator
from typing import Any
from uuid import UUID, uuid4

import psycopg
import pytest

from offsetzero.consumers.group import ConsumerGroup
from offsetzero.consumers.projection import Projection, make_tables
from offsetzero.consumers.working import owed
from offsetzero.generation import Generation
from offsetzero.store import generations, processed, run_steps, runs, withheld
from offsetzero.store.outbox import OutboxRow
from offsetzero.store.processed import EventIdentity, Outcome
from offsetzero.store.script import run
from offsetzero.store.withheld import StepEnd
from support import wait_until

Connection = psycopg.Connection[tuple[Any, ...]]
GROUP = ConsumerGroup("names", projection=Projection("CREATE TABLE names (name text)"))
ONE, TWO = Generation("names"), Generation("names", 2)


@pytest.fixture
def connection(database_url: str) -> Iterator[Connection]:
    """With two generations; the first is read."""
    assert GROUP.projection is not None
    with psycopg.connect(database_url, autocommit=True) as connection:
        for generation in (ONE, TWO):
            with connection.transaction():
                make_tables(connection, generation, GROUP.projection)
        yield connection


def _move(connection: Connection, old: Generation, new: Generation) -> None:
    with connection.transaction():
        run(connection, generations.hold_pointer("names"))
        run(connection, generations.freeze("names", 30))
        assert run(connection, generations.move("names", old.number, new.number))


def _of(generation: Generation, event_id: str) -> EventIdentity:
    return EventIdentity("names", "test", event_id, generation=generation.number)


def _row(name: str) -> OutboxRow:
    return OutboxRow(uuid4(), "run", name, "run.succeeded", b"", "runs", "{}")


def _silently(connection: Connection, event_id: str, *names: str, step: UUID | None = None) -> None:
    """The second generation applies an event while the first one is read."""
    end = StepEnd(Outcome.APPLIED, step) if step is not None else None
    with connection.transaction():
        standing = run(connection, generations.enter(TWO))
        assert standing is not None
        assert run(connection, processed.claim(_of(TWO, event_id), Outcome.APPLIED, silent=not standing.is_read))
        run(connection, owed.withhold(_of(TWO, event_id), end, standing, lambda: [_row(name) for name in names]))


def _published(connection: Connection) -> list[str]:
    return [row[0] for row in connection.execute("SELECT aggregateid FROM outbox ORDER BY 1")]


def _settle(connection: Connection, generation: Generation) -> bool:
    with connection.transaction():
        return run(connection, owed.settle(GROUP, generation, "test"))


def test_an_event_that_was_cancelled_aloud_has_no_effects_in_another_generation(connection: Connection) -> None:
    """A user has cancelled the run: that the other generation has not seen it in time must not publish its results."""
    _silently(connection, "before", "before")
    for event_id in ("before", "after"):
        run(connection, processed.claim(_of(ONE, event_id), Outcome.CANCELLED))
    _silently(connection, "after", "after")
    _silently(connection, "other", "other")
    _move(connection, ONE, TWO)
    while _settle(connection, TWO):
        pass
    assert _published(connection) == ["other"]


def test_what_is_owed_locks_runs_in_the_order_in_which_others_do(connection: Connection, database_url: str) -> None:
    """Who works on many runs in one transaction takes them in the order of their ids, otherwise two groups deadlock."""
    low, high = sorted((uuid4(), uuid4()))
    for run_id in (low, high):
        run(connection, runs.create(run_id, "demo", uuid4(), ["names"]))
    _silently(connection, "first", step=high)
    _silently(connection, "second", step=low)
    _move(connection, ONE, TWO)
    with psycopg.connect(database_url) as other:
        run(other, runs.lock_all([low]))
        settling = threading.Thread(target=_settle, args=(connection, TWO))
        settling.start()
        waits = "SELECT count(*) FROM pg_stat_activity WHERE pid = %s AND wait_event_type = 'Lock'"
        pid = connection.info.backend_pid
        wait_until(lambda: other.execute(waits, (pid,)).fetchone() == (1,), what="the wait for the lower one")
        run(other, runs.lock_all([low, high]))  # a deadlock else, of which one of the two dies
        other.commit()
        settling.join(60)
    found = connection.execute("SELECT status, count(*) FROM runs GROUP BY 1").fetchall()
    assert found == [("succeeded", 2)]


def test_all_effects_of_an_event_are_done_at_once(connection: Connection, monkeypatch: pytest.MonkeyPatch) -> None:
    """The other one is read again before the rest is done: for that one each event has had its effects, or has not.

    Effects of several events are mixed up, as transactions write them that run side by side.
    """
    monkeypatch.setattr(owed, "AT_ONCE", 3)
    for number in range(4):
        _silently(connection, f"event-{number}")
    for name in ("a", "b", "c"):
        for number in range(4):
            with connection.transaction():
                run(connection, withheld.put(_of(TWO, f"event-{number}"), None, [_row(f"{name} of {number}")]))
    _move(connection, ONE, TWO)
    assert _settle(connection, TWO)
    assert _published(connection) == sorted(f"{name} of {number}" for number in range(3) for name in "abc")
    done = [run(connection, withheld.is_done(_of(ONE, f"event-{number}"), [2])) for number in range(4)]
    assert done == [True, True, True, False]


def test_a_run_that_failed_in_the_generation_before_succeeds_with_the_one_that_has_applied_its_event(
    connection: Connection,
) -> None:
    """What the user finds in the projection is there, so its run must not say for ever that it is not.

    Not one that another event has failed, nor one that was cancelled.
    """
    mended, other, cancelled = uuid4(), uuid4(), uuid4()
    for run_id in (mended, other, cancelled):
        run(connection, runs.create(run_id, "demo", uuid4(), ["names"]))
    with connection.transaction():
        for run_id in (mended, other):
            assert run(connection, run_steps.fail_step(run_id, "names", reason="corrupt", detail="")) is not None
        assert run(connection, run_steps.cancel_step(cancelled, "names", reason="", detail="")) is not None
    run(connection, processed.claim(_of(ONE, "mended"), Outcome.DEAD_LETTERED))
    run(connection, processed.claim(_of(ONE, "cancelled"), Outcome.FAILED))
    for event_id, run_id in (("mended", mended), ("other", other), ("cancelled", cancelled)):
        _silently(connection, event_id, step=run_id)
    _move(connection, ONE, TWO)
    while _settle(connection, TWO):
        pass
    found = dict(connection.execute("SELECT id, status FROM runs").fetchall())
    assert found == {mended: "succeeded", other: "failed", cancelled: "cancelled"}
    assert connection.execute("SELECT type FROM outbox").fetchall() == [("run.succeeded",)]


def test_what_another_generation_has_done_is_not_made_once_more(connection: Connection) -> None:
    """Of a rebuild that is almost all of the log: to encode it all and throw it away would cost more than handling."""
    run(connection, processed.claim(_of(ONE, "done"), Outcome.APPLIED))
    made = []
    with connection.transaction():
        standing = run(connection, generations.enter(TWO))
        assert standing is not None
        for event_id in ("done", "new"):
            run(
                connection,
                owed.withhold(_of(TWO, event_id), None, standing, lambda name=event_id: made.append(name) or []),
            )
    assert made == ["new"]
