"""The ledger of dead letters in the real database."""

from collections.abc import Iterator
from uuid import UUID

import psycopg
import pytest

from offsetzero.store import dead_letter_actions, dead_letters
from offsetzero.store.dead_letter_pages import pages
from offsetzero.store.dead_letter_status import Status
from offsetzero.store.dead_letters import Filter
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


def test_a_status_chooses_those_that_are_shown_with_it(connection: Connection) -> None:
    action = "00000000-0000-7000-8000-000000000002"
    connection.execute(
        "INSERT INTO dead_letter_actions (id, kind, group_name, who, why, chosen) "
        "VALUES (%s, 'redrive', 'g0', '', '', '') ON CONFLICT DO NOTHING",
        (action,),
    )
    connection.execute(
        "INSERT INTO dead_letter_decisions SELECT topic_id, partition, place, %s, 1, "
        "CASE WHEN partition < 2 THEN now() END FROM dead_letters WHERE place %% 3 = 1",
        (action,),
    )
    connection.execute("DELETE FROM processed_events WHERE source = 's'")
    for place, number, outcome in ((1, 1, "applied"), (4, 0, "stale"), (7, 1, "dead-lettered"), (10, 1, "failed")):
        connection.execute(
            "INSERT INTO processed_events (group_name, generation, source, event_id, redrive_no, outcome) "
            "SELECT group_name, 1, source, event_id, %s, %s FROM dead_letters WHERE place = %s",
            (number, outcome, place),
        )
    again = (  # 13 was dead-lettered again, in a group that writes no outcomes
        "INSERT INTO dead_letters SELECT topic_id, partition, 1000, group_name, failed_at, source, event_id, 1, "
        "event_type, tenant_id, run_id, key, failure, reason, detail, fingerprint, attempt, origin_topic_id, "
        "origin_topic, origin_partition, origin_offset FROM dead_letters WHERE place = 13"
    )
    connection.execute(again)
    every = run(connection, dead_letters.find(Filter()))
    assert {one.status for one in every} == set(Status)
    ended = {(one.entry.place, one.outcome) for one in every if one.status is Status.ENDED}
    assert ended == {(7, "dead-lettered"), (10, "failed"), (13, "dead-lettered")}
    assert {one.status for one in every if one.entry.place == 1000} == {Status.OPEN}
    for status in Status:
        wanted = [one for one in every if one.status is status]
        assert run(connection, dead_letters.find(Filter(status=status))) == wanted
        assert run(connection, dead_letters.count(Filter(status=status))) == len(wanted)
    free = Filter(status=Status.OPEN, free=True)
    assert run(connection, dead_letters.find(free)) == [
        one for one in every if one.status is Status.OPEN and one.action_id is None
    ]
    open_ = {"g0": 0, "g1": 0}
    for one in every:
        open_[one.entry.group_name] += one.status is Status.OPEN
    found = run(connection, dead_letters.open_by_failure())
    assert {group: count for group, rows in found.items() for count, _ in rows.values()} == open_


def test_a_hold_is_that_of_the_generation_whose_dead_letter_it_is(connection: Connection) -> None:
    connection.execute("DELETE FROM holds")
    connection.execute("DELETE FROM dead_letter_decisions")
    connection.execute("UPDATE dead_letters SET group_name = 'g1.g2' WHERE group_name = 'g1'")
    connection.execute(
        "INSERT INTO holds (group_name, generation, topic_id, partition, origin, key, redrive_no, hop) "
        "SELECT 'g1', generation, 'S', origin_partition, origin_offset, convert_to('key ' || generation, 'UTF8'), 0, 0 "
        "FROM dead_letters, generate_series(1, 2) AS generation WHERE origin_offset IN (1, 2, 3)"
    )
    action = "00000000-0000-7000-8000-000000000003"
    connection.execute(
        "INSERT INTO dead_letter_actions (id, kind, group_name, who, why, chosen) "
        "VALUES (%s, 'discard', 'g1.g2', '', '', '') ON CONFLICT DO NOTHING",
        (action,),
    )
    connection.execute(
        "INSERT INTO dead_letter_decisions SELECT topic_id, partition, place, %s, origin_offset FROM dead_letters "
        "WHERE origin_offset < 10 AND group_name = 'g1.g2'",
        (action,),
    )
    begun = run(connection, dead_letter_actions.find(UUID(action)))
    assert begun is not None
    assert run(connection, dead_letter_actions.held(begun)) == {1: b"key 2", 3: b"key 2"}


def test_canaries_that_had_ended_when_it_was_their_turn_tell_so(connection: Connection) -> None:
    """A forced replay has handled their events under their own number: they are not sent, and would be awaited for
    an hour, and be shown as on their way for good."""
    action = UUID("00000000-0000-7000-8000-000000000004")
    connection.execute("DELETE FROM dead_letter_decisions")
    connection.execute(
        "INSERT INTO dead_letter_actions (id, kind, group_name, who, why, chosen) "
        "VALUES (%s, 'redrive', 'g0', '', '', '') ON CONFLICT DO NOTHING",
        (action,),
    )
    connection.execute(
        "INSERT INTO dead_letter_decisions SELECT topic_id, partition, place, %s, origin_offset, now() "
        "FROM dead_letters WHERE group_name = 'g0' AND origin_offset BETWEEN 1 AND 8",
        (action,),
    )
    connection.execute("DELETE FROM processed_events WHERE source = 's'")
    connection.execute("DELETE FROM forced_spans")
    connection.execute("INSERT INTO group_generations (group_name, generation) VALUES ('g0', 2) ON CONFLICT DO NOTHING")
    connection.execute(
        "INSERT INTO forced_spans SELECT 'g0', 2, 'S', number, 0, 5 FROM generate_series(0, 2) AS number"
    )
    for event, generation, number, outcome in (
        ("e2", 1, 0, "dead-lettered"),
        ("e2", 2, 0, "applied"),  # by the replay
        ("e4", 1, 0, "dead-lettered"),
        ("e4", 2, 0, "failed"),
        ("e6", 1, 0, "dead-lettered"),  # behind what was replayed: sent, and not ended yet
        ("e8", 1, 0, "dead-lettered"),
        ("e8", 1, 1, "applied"),
    ):
        connection.execute(
            "INSERT INTO processed_events (group_name, generation, source, event_id, redrive_no, outcome) "
            "VALUES ('g0', %s, 's', %s, %s, %s)",
            (generation, event, number, outcome),
        )
    assert run(connection, dead_letter_actions.outcomes(action, [2, 4, 6, 8])) == {"applied": 2, "failed": 1}
    found = run(connection, dead_letters.find(Filter(groups=["g0"], actions=[action])))
    assert {one.entry.event_id: (one.status, one.outcome) for one in found} == {
        "e2": (Status.RESOLVED, "applied"),
        "e4": (Status.ENDED, "failed"),
        "e6": (Status.REDRIVEN, None),
        "e8": (Status.RESOLVED, "applied"),
    }
    for status in (Status.RESOLVED, Status.ENDED, Status.REDRIVEN):
        assert run(connection, dead_letters.find(Filter(status=status))) == [
            one for one in found if one.status is status
        ]
    connection.execute("DELETE FROM forced_spans")
