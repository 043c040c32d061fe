"""Marks of what a member works on, on the real database."""

from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any

import psycopg
import pytest

from offsetzero.consumers.group import ConsumerGroup
from offsetzero.consumers.record import OwnedPartition, Record
from offsetzero.consumers.working.database import MAX_CRASHES, DatabaseEffects
from offsetzero.consumers.working.run import Ending
from offsetzero.retry.failures import CrashLoop
from offsetzero.settings import Settings
from offsetzero.store import processed
from offsetzero.store.crash_marks import close_mark, give_back, open_mark
from offsetzero.store.database import Pool, committing, pool
from offsetzero.store.processed import EventIdentity, Outcome
from offsetzero.store.script import run

EVENT = EventIdentity("audit", "tests", "1")


@pytest.fixture
def connections(settings: Settings) -> Iterator[Pool]:
    """A pool of one connection."""
    with pool(settings, 1) as made:
        yield made


def test_a_mark_counts_the_members_that_died_with_it(connections: Pool) -> None:
    with committing(connections) as connection:
        found = [run(connection, open_mark(EVENT, member, alone=True)) for member in ("a", "a", "b", "c")]
        assert found == [(0, True), (0, True), (1, True), (2, True)]
        run(connection, close_mark(EVENT))
        assert run(connection, open_mark(EVENT, "d", alone=True)) == (0, True)


def test_among_others_the_mark_of_another_member_stays_as_it_is(connections: Pool) -> None:
    """A member that dies meanwhile, of another event, is no second crash of this one."""
    with committing(connections) as connection:
        assert run(connection, open_mark(EVENT, "a", alone=False)) == (0, True)
        assert run(connection, open_mark(EVENT, "a", alone=False)) == (0, True)
        assert run(connection, open_mark(EVENT, "b", alone=False)) == (0, False)
        assert run(connection, open_mark(EVENT, "c", alone=True)) == (1, True)
        assert run(connection, open_mark(EVENT, "d", alone=False)) == (1, False)


def test_who_did_not_begin_gives_the_mark_back_with_its_count(connections: Pool) -> None:
    with committing(connections) as connection:
        assert run(connection, open_mark(EVENT, "a", alone=True)) == (0, True)
        run(connection, give_back(EVENT, "a", 0))
        assert run(connection, open_mark(EVENT, "b", alone=True)) == (0, True)
        assert run(connection, open_mark(EVENT, "c", alone=True)) == (1, True)
        run(connection, give_back(EVENT, "c", 1))
        assert run(connection, open_mark(EVENT, "d", alone=False)) == (1, False)
        assert run(connection, open_mark(EVENT, "d", alone=True)) == (1, True)
        assert run(connection, open_mark(EVENT, "e", alone=True)) == (2, True)
        run(connection, give_back(EVENT, "c", 1))  # who has lost its partition since
        run(connection, give_back(EVENT, "d", 0))
        assert run(connection, open_mark(EVENT, "f", alone=True)) == (3, True), "what the next owner began is counted"


def test_nothing_is_left_of_a_count_that_was_given_back_once_the_event_has_an_outcome(
    settings: Settings, connections: Pool
) -> None:
    """The broker is away while the dead letter is appended of an event that ends processes, and comes back."""
    effects = DatabaseEffects(ConsumerGroup("audit"), settings, connections)
    owned = OwnedPartition("documents", "id", 0)
    owned.suspects_end = 1
    call: Any = SimpleNamespace(identity=EVENT, record=Record(owned, 0, None, None, [], 0), failure=None)
    call.record.lone = True
    with committing(connections) as connection:
        for member in map(str, range(MAX_CRASHES)):
            run(connection, open_mark(EVENT, member, alone=True))
    with pytest.raises(CrashLoop):
        effects._mark(call)
    effects.leave(call, Ending.AGAIN)
    with committing(connections) as connection:
        assert connection.execute("SELECT crashes, member FROM crash_marks").fetchall() == [(MAX_CRASHES, "")]
    effects.leave(call, Ending.AGAIN)
    effects.leave(call, Ending.DONE)
    with committing(connections) as connection:
        assert connection.execute("SELECT count(*) FROM crash_marks").fetchone() == (0,)


def test_an_event_that_has_ended_is_not_marked_until_it_is_redriven(connections: Pool) -> None:
    with committing(connections) as connection:
        run(connection, processed.claim(EVENT, Outcome.APPLIED))
        assert run(connection, open_mark(EVENT, "a", alone=False)) is None
        assert run(connection, open_mark(EVENT, "a", alone=True)) is None
        assert connection.execute("SELECT count(*) FROM crash_marks").fetchone() == (0,)
        assert run(connection, open_mark(EVENT._replace(redrive_no=1), "a", alone=False)) == (0, True)


def test_each_statement_commits_by_itself_and_the_next_user_has_a_transaction_again(
    connections: Pool, settings: Settings
) -> None:
    with psycopg.connect(settings.database_url.get_secret_value(), autocommit=True) as other:
        with committing(connections) as connection:
            run(connection, open_mark(EVENT, "a", alone=False))
            assert other.execute("SELECT count(*) FROM crash_marks").fetchone() == (1,)
            with pytest.raises(psycopg.errors.DivisionByZero):
                connection.execute("SELECT 1 / 0")
        with connections.connection() as connection:
            run(connection, close_mark(EVENT))
            assert other.execute("SELECT count(*) FROM crash_marks").fetchone() == (1,)
            connection.rollback()


def test_a_connection_that_broke_is_replaced(connections: Pool, settings: Settings) -> None:
    def lose() -> None:
        with committing(connections) as connection:
            with psycopg.connect(settings.database_url.get_secret_value(), autocommit=True) as other:
                other.execute("SELECT pg_terminate_backend(%s)", (connection.info.backend_pid,))
            run(connection, open_mark(EVENT, "a", alone=False))

    with pytest.raises(psycopg.OperationalError):
        lose()
    with committing(connections) as connection:
        assert run(connection, open_mark(EVENT, "a", alone=True)) == (0, True)
