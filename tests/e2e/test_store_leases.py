"""Leases in the real database: a number that rises, and what comes with an older one."""

import math
import threading
from collections.abc import Callable, Iterator
from typing import Any
from uuid import UUID, uuid4

import psycopg
import pytest
from pydantic import SecretStr

from offsetzero import metrics
from offsetzero.consumers.sweeping import sweeper
from offsetzero.consumers.sweeping.sweeper import Sweeper
from offsetzero.settings import Settings
from offsetzero.store import database, leases, run_events, run_steps, runs
from offsetzero.store.leases import Fenced, NotOurs, Owner, Request, Rescue, Stay
from offsetzero.store.script import Script, run
from support import at_work, wait_until

Connection = psycopg.Connection[tuple[Any, ...]]
OWNER = Owner("indexer", "m1", "indexer-0123456789abcdef")
HERE = Stay("indexer", "documents", 0, "s1")


def ask(owner: Owner = OWNER, seconds: float = 3600.0, stay: Stay = HERE) -> Request:
    return Request(owner, seconds, stay)


@pytest.fixture
def connection(database_url: str) -> Iterator[Connection]:
    with psycopg.connect(database_url, autocommit=True) as connection:
        yield connection


@pytest.fixture
def settings(database_url: str) -> Settings:
    return Settings(database_url=database_url)  # type: ignore[arg-type]


@pytest.fixture
def run_id(connection: Connection) -> UUID:
    made = uuid4()
    run(connection, runs.create(made, "demo", uuid4(), ["indexer", "summariser"]))
    return made


def rows(connection: Connection, run_id: UUID) -> list[tuple[Any, ...]]:
    """All that is known of a run and its steps, with the transactions that have written it."""
    return [
        *connection.execute("SELECT xmin::text, * FROM runs WHERE id = %s", (run_id,)).fetchall(),
        *connection.execute(
            "SELECT xmin::text, * FROM run_steps WHERE run_id = %s ORDER BY step", (run_id,)
        ).fetchall(),
    ]


def take(connection: Connection, reason: str = "owner-gone") -> set[tuple[UUID, str]]:
    found = run(connection, leases.held(0.0))
    return run(connection, leases.take_away([Rescue(one, reason, "said") for one in found]))


LATE: dict[str, Callable[[UUID, int], Script[Any]]] = {
    "succeeds": lambda run_id, fence: run_steps.succeed_step(run_id, "indexer", fence=fence),
    "fails": lambda run_id, fence: run_steps.fail_step(run_id, "indexer", reason="x", detail="", fence=fence),
    "is cancelled": lambda run_id, fence: run_steps.cancel_step(run_id, "indexer", reason="x", detail="", fence=fence),
    "waits": lambda run_id, fence: run_steps.wait_step(
        run_id, "indexer", attempt=1, reason="x", detail="", due=None, fence=fence
    ),
}


@pytest.mark.parametrize("late", LATE)
@pytest.mark.parametrize("since", ["leased by another", "taken away", "taken away, and leased"])
def test_who_comes_late_changes_nothing(connection: Connection, run_id: UUID, late: str, since: str) -> None:
    fence = run(connection, run_steps.start_step(run_id, "indexer", 1, ask()))
    assert fence == 1
    if "taken away" in since:
        assert take(connection) == {(run_id, "indexer")}
    if "leased" in since:
        assert run(connection, run_steps.start_step(run_id, "indexer", 1, ask(OWNER._replace(member="m2")))) == (
            2 if since == "leased by another" else 3
        )
    before = rows(connection, run_id)
    with pytest.raises(Fenced), connection.transaction():
        run(connection, LATE[late](run_id, fence))
    assert rows(connection, run_id) == before


@pytest.mark.parametrize("late", LATE)
def test_who_has_the_lease_ends_the_step_and_gives_it_up(connection: Connection, run_id: UUID, late: str) -> None:
    run(connection, run_steps.start_step(run_id, "indexer", 1, ask()))
    fence = run(connection, run_steps.start_step(run_id, "indexer", 1, ask()))
    run(connection, LATE[late](run_id, fence or 0))
    assert run(connection, leases.held(0.0)) == []


def test_a_cancelled_run_has_no_leases(connection: Connection, run_id: UUID) -> None:
    fence = run(connection, run_steps.start_step(run_id, "indexer", 1, ask()))
    assert run(connection, runs.cancel("demo", run_id)) is not None
    assert run(connection, leases.held(0.0)) == []
    assert run(connection, run_steps.succeed_step(run_id, "indexer", fence=fence or 0)) is None


def test_a_step_that_was_taken_away_is_queued_and_says_why(connection: Connection, run_id: UUID) -> None:
    run(connection, run_steps.start_step(run_id, "indexer", 1, ask()))
    assert take(connection) == {(run_id, "indexer")}
    found = connection.execute(
        "SELECT status, reason, detail, owner, deadline, attempts FROM run_steps WHERE step = 'indexer'"
    ).fetchall()
    assert found == [("queued", "owner-gone", "said", None, None, 1)]


def test_who_is_late_because_it_took_too_long_is_told_so(connection: Connection, run_id: UUID) -> None:
    fence = run(connection, run_steps.start_step(run_id, "indexer", 1, ask()))
    take(connection, leases.OVERDUE)
    with pytest.raises(Fenced) as caught:
        run(connection, run_steps.succeed_step(run_id, "indexer", fence=fence or 0))
    assert caught.value.overdue


def test_what_has_ended_meanwhile_is_not_taken_away(connection: Connection, run_id: UUID) -> None:
    fence = run(connection, run_steps.start_step(run_id, "indexer", 1, ask()))
    [held] = run(connection, leases.held(0.0))
    run(connection, run_steps.succeed_step(run_id, "indexer", fence=fence or 0))
    before = rows(connection, run_id)
    assert run(connection, leases.take_away([Rescue(held, "owner-gone", "")])) == set()
    assert rows(connection, run_id) == before


def test_a_member_that_has_lost_its_partition_leases_nothing(connection: Connection, run_id: UUID) -> None:
    connection.execute(
        "INSERT INTO group_starts (group_name, topic, partition, topic_id, start_offset, stay) "
        "VALUES ('indexer', 'documents', 0, 'id', 0, 's2')"
    )
    before = rows(connection, run_id)
    with pytest.raises(NotOurs):
        run(connection, run_steps.start_step(run_id, "indexer", 1, ask()))
    assert rows(connection, run_id) == before
    assert run(connection, run_steps.start_step(run_id, "indexer", 1, ask(stay=HERE._replace(name="s2")))) == 1
    side_job = HERE._replace(name="")
    assert run(connection, run_steps.start_step(run_id, "indexer", 1, ask(stay=side_job))) == 2, "it reads for no group"


def test_the_clock_of_the_database_decides(connection: Connection, run_id: UUID) -> None:
    run(connection, run_steps.start_step(run_id, "indexer", 1, ask(seconds=0.0)))
    run(connection, run_steps.start_step(run_id, "summariser", 1, ask(seconds=60.0)))
    found = {one.step: one.overdue for one in run(connection, leases.held(0.0))}
    assert found == {"indexer": True, "summariser": False}
    assert not any(one.overdue for one in run(connection, leases.held(60.0))), "it may end the step itself for a while"


def test_who_follows_a_run_sees_nothing_of_leases(connection: Connection, run_id: UUID) -> None:
    for _ in range(3):
        run(connection, run_steps.start_step(run_id, "indexer", 1, ask()))
    told = run(connection, run_events.since("demo", run_id, 0))
    assert told is not None
    steps = [one.state for one in told.events if one.kind == "step" and one.state["step"] == "indexer"]
    assert [one["status"] for one in steps] == ["queued", "running"], "a further lease is no event"
    assert not {"fence", "owner", "deadline"} & set().union(*steps)


def test_two_sweepers_never_act_twice(
    connection: Connection, settings: Settings, monkeypatch: pytest.MonkeyPatch
) -> None:
    """hexpm#1825: a nightly job ran two or three times, because nobody had compared before it set."""
    monkeypatch.setattr(sweeper, "GRACE_SECONDS", 0.0)
    made = [uuid4() for _ in range(50)]
    for one in made:
        run(connection, runs.create(one, "demo", uuid4(), ["indexer"]))
        run(connection, run_steps.start_step(one, "indexer", 1, ask()))
    acted: list[UUID] = []
    together = threading.Barrier(4)

    def sweep() -> None:
        judged = Sweeper(settings, members=lambda _settings, _group: ["m2"])
        with database.session(settings, "sweeper") as session:
            for _ in range(4):
                together.wait(30)
                acted.extend(one.lease.run_id for one in judged.look(session))

    threads = [threading.Thread(target=sweep) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    assert sorted(acted) == sorted(made), "each once"
    fences = connection.execute("SELECT DISTINCT status, fence FROM run_steps").fetchall()
    assert fences == [("queued", 2)]


def test_a_run_that_somebody_holds_keeps_no_other_step_from_its_rescue(
    connection: Connection, settings: Settings, run_id: UUID, monkeypatch: pytest.MonkeyPatch
) -> None:
    """By a session that is no member's: of an operator, or of an API process that is frozen while it cancels."""
    monkeypatch.setattr(sweeper, "GRACE_SECONDS", 0.0)
    run(connection, runs.create(other := uuid4(), "demo", uuid4(), ["indexer"]))
    for one in (run_id, other):
        run(connection, run_steps.start_step(one, "indexer", 1, ask(seconds=0.0)))
    judge = Sweeper(settings, members=lambda _settings, _group: [])
    with (
        database.session(settings, "offsetzero-sweeper") as session,
        psycopg.connect(settings.database_url.get_secret_value()) as holder,
    ):
        session.execute("SET lock_timeout = '1s'")
        run(holder, runs.lock(run_id))
        assert [one.lease.run_id for one in judge.look(session)] == [other]
        holder.rollback()
        assert [one.lease.run_id for one in judge.look(session)] == [run_id], "at the next look"


def test_the_sweeper_measures_the_oldest_transaction(settings: Settings) -> None:
    judge = Sweeper(settings, members=lambda _settings, _group: [])
    with (
        database.session(settings, "offsetzero-sweeper") as session,
        psycopg.connect(settings.database_url.get_secret_value()) as old,
    ):
        ((begun,),) = old.execute("SELECT now()").fetchall()
        judge.look(session)
        ((passed,),) = session.execute("SELECT extract(epoch FROM clock_timestamp() - %s)", (begun,)).fetchall()
        assert 0 < metrics.OLDEST_TRANSACTION._value.get() <= passed
        old.rollback()
        judge.look(session)
    assert metrics.OLDEST_TRANSACTION._value.get() == 0, "its own does not count"


def test_without_its_database_the_sweeper_knows_of_no_transaction(settings: Settings) -> None:
    metrics.OLDEST_TRANSACTION.set(900)
    nowhere = settings.model_copy(update={"database_url": SecretStr("postgresql://nobody@127.0.0.1:1/none")})
    with at_work(Sweeper(nowhere).run, "sweeper"):
        wait_until(lambda: math.isnan(metrics.OLDEST_TRANSACTION._value.get()))


@pytest.mark.parametrize("who", ["its owner is gone", "another has begun the event"])
def test_a_session_that_stands_still_in_a_transaction_keeps_nobody_waiting(
    connection: Connection, settings: Settings, run_id: UUID, who: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A process that is frozen after its last statement keeps its locks, and a connection that its kernel keeps."""
    monkeypatch.setattr(sweeper, "STILL_SECONDS", 0.1)
    url = settings.database_url.get_secret_value()
    claim = (
        "INSERT INTO processed_events (group_name, generation, source, event_id, redrive_no, outcome) "
        "VALUES ('indexer', 1, '/x', 'e1', 0, 'applied')"
    )
    run(connection, run_steps.start_step(run_id, "indexer", 1, ask()))
    frozen = psycopg.connect(url, application_name=OWNER.sessions)
    frozen.execute(claim)
    run(frozen, runs.lock_all([run_id]))
    judge = Sweeper(settings, members=lambda _settings, _group: [] if who == "its owner is gone" else ["m1"])
    with (
        database.session(settings, "offsetzero-sweeper") as session,
        psycopg.connect(url, application_name="indexer-fedcba9876543210") as other,
    ):
        waiting = threading.Thread(target=lambda: other.execute(claim.encode()))
        if who == "another has begun the event":
            waiting.start()
        wait_until(lambda: [judge.look(session), _is_dead(connection, frozen)][1], what="the end of the session")
        if who == "another has begun the event":
            waiting.join(30)
            assert not waiting.is_alive()
        else:
            wait_until(lambda: run(connection, leases.held(0.0)) == [] or judge.look(session), what="the rescue")
    with pytest.raises(psycopg.OperationalError):
        frozen.commit()


def _is_dead(connection: Connection, other: Connection) -> bool:
    found = connection.execute("SELECT FROM pg_stat_activity WHERE pid = %s", (other.info.backend_pid,)).fetchone()
    return found is None
