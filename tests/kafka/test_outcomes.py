"""What the tables of outcomes and holds answer, in PostgreSQL itself."""

import psycopg
import pytest

from offsetzero.settings import Settings
from offsetzero.store import holds, processed
from offsetzero.store.holds import Hold
from offsetzero.store.processed import EventIdentity, Outcome
from offsetzero.store.script import run


def test_of_several_outcomes_of_an_event_the_last_is_found(settings: Settings) -> None:
    """A hold stays for a dead letter, not for one that was redriven and applied: which of the two is found matters."""
    with psycopg.connect(settings.database_url.get_secret_value()) as connection:
        for number, outcome in enumerate([Outcome.DEAD_LETTERED, Outcome.DEAD_LETTERED, Outcome.APPLIED]):
            assert run(connection, processed.claim(EventIdentity("audit", "/test", "1", number), outcome))
        for number in range(3):
            assert run(connection, processed.find(EventIdentity("audit", "/test", "1", number))) is Outcome.APPLIED
        assert run(connection, processed.find(EventIdentity("audit", "/test", "1", 3))) is None


@pytest.mark.parametrize(
    "other", [EventIdentity("audit", "/other", "1"), EventIdentity("audit", "/test", "1", 1), None]
)
def test_of_many_events_those_are_claimed_that_have_no_outcome(settings: Settings, other: EventIdentity | None) -> None:
    """Whether all are of one source and number, or not; of equal ones in a batch it is the first."""
    one, two, odd = (EventIdentity("audit", "/test", name) for name in ("1", "2", 'odd,"\\{}'))
    batch = [one, two, odd, two, *([other] if other is not None else [])]
    new = [False, True, True, False, True][: len(batch)]
    with psycopg.connect(settings.database_url.get_secret_value()) as connection:
        assert run(connection, processed.claim_all([one], Outcome.APPLIED, silent=True)) == [True]
        assert run(connection, processed.claim_all(batch, Outcome.STALE)) == new
        assert run(connection, processed.claim_all(batch, Outcome.STALE)) == [False] * len(batch)
        rows = connection.execute(
            "SELECT group_name, source, event_id, redrive_no, generation, outcome, silent FROM processed_events"
        ).fetchall()
        assert sorted(rows) == sorted(
            [(*one, "applied", True)] + [(*each, "stale", False) for each in {two, odd, *batch[4:]}]
        )
        later = one._replace(generation=2)
        assert run(connection, processed.claim_all([later, one], Outcome.APPLIED)) == [True, False]


def test_holds_are_read_of_the_partitions_that_are_asked_for(settings: Settings) -> None:
    placed = [Hold(topic, partition, 7, b"k", 0, 1) for topic in ("a", "b") for partition in range(3)]
    with psycopg.connect(settings.database_url.get_secret_value()) as connection:
        for hold in placed:
            run(connection, holds.place("audit", hold))
        run(connection, holds.place("other", placed[0]))
        found = run(connection, holds.of_partitions("audit", {0, 2}))
        assert found == [hold for hold in placed if hold.partition != 1]
        assert run(connection, holds.of_partitions("audit", set())) == []
