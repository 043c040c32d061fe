"""Where a partition is read from: an offset that is known to be right, or an error that names the gap."""

import re

import pytest

from offsetzero.consumers.reading.positions import Facts, births, decide, deleted
from offsetzero.consumers.record import OwnedPartition
from offsetzero.errors import GroupStopped, LostBecause, PositionLost
from offsetzero.store.positions import Position
from offsetzero.store.starts import Start

STAY = OwnedPartition("documents", "id-1", 3)
BEGUN, PLANNED = Start("id-1", 10, committed=True), Start("id-1", 10, committed=False)


def facts(low: int = 0, high: int = 100, **given: object) -> Facts:
    return Facts("id-1", low, high, **given)  # type: ignore[arg-type]


def lost(found: Facts, at: int | None = None) -> PositionLost:
    with pytest.raises(PositionLost) as raised:
        decide("audit", STAY, found, at)
    assert isinstance(raised.value, GroupStopped)
    assert str(raised.value).startswith("group audit: ")
    return raised.value


@pytest.mark.parametrize(
    ("found", "offset"),
    [
        (facts(committed=42, committed_id="id-1", start=BEGUN), 42),
        (facts(committed=42, committed_id="", start=BEGUN), 42),  # committed by a version that named no topic
        (facts(committed=42, start=None), 42),  # the same, in a group without a database
        (facts(committed=0, start=BEGUN), 0),
        (facts(committed=100, start=BEGUN), 100),
        (facts(low=42, committed=42, start=BEGUN), 42),
        (facts(low=0, high=0, committed=0, start=BEGUN), 0),
        (facts(start=PLANNED), 10),  # the process ended between its birth and its first commit
        (facts(low=7), 7),  # no database, nothing committed: all that is kept
    ],
)
def test_a_position_in_the_log_is_taken(found: Facts, offset: int) -> None:
    assert decide("audit", STAY, found) == offset


def test_where_the_member_itself_was_wins_over_what_it_has_committed() -> None:
    assert decide("audit", STAY, facts(committed=42, start=BEGUN), at=50) == 50
    assert decide("audit", STAY, facts(start=BEGUN), at=50) == 50


def test_below_the_log_start_the_gap_is_named() -> None:
    """quix-streams#1114, franz-go#1428: stuck, or silently at the end."""
    error = lost(facts(low=60, committed=42, start=BEGUN))
    assert (error.reason, error.topic, error.partition, error.gap) == (
        LostBecause.BELOW_START,
        "documents",
        3,
        (42, 60),
    )
    assert "documents/3 was read up to offset 42" in str(error)
    assert "the records from 42 to 59 are gone" in str(error)
    assert "`offsetzero groups reset audit --to earliest --topic documents --partition 3 --yes`" in str(error)
    assert lost(facts(low=60, committed=90, start=BEGUN), at=42).gap == (42, 60)
    assert lost(facts(low=60, start=PLANNED)).gap == (10, 60), "a group that was born and never came to read"


@pytest.mark.parametrize(("group", "typed"), [("catalogue", "catalogue.g1"), ("catalogue.g2", "catalogue.g2")])
def test_the_command_means_this_generation_whichever_is_read(group: str, typed: str) -> None:
    """GROUP is the one that is read: with the second one read, `reset catalogue` would have moved that."""
    kept = Position("id-1", 42)
    gaps = [facts(low=60, kept=kept), facts(high=41, kept=kept), Facts("id-2", 0, 9, kept=kept), Facts(None, kept=kept)]
    for found in gaps:
        with pytest.raises(PositionLost, match=f"`offsetzero groups reset {re.escape(typed)} --to"):
            decide(group, STAY, found)


def test_above_the_end_the_gap_is_named() -> None:
    """librdkafka#1442: all again."""
    error = lost(facts(committed=142, start=BEGUN))
    assert (error.reason, error.gap) == (LostBecause.ABOVE_END, (100, 142))
    assert "its log ends at 100: the offsets from 100 to 141 are not in it" in str(error)
    assert "--to latest" in str(error)


def test_an_expired_offset_is_told_from_a_new_group() -> None:
    error = lost(facts(low=5, start=BEGUN))
    assert (error.reason, error.gap) == (LostBecause.EXPIRED, (5, 100))
    assert "begun at offset 10, and Kafka holds no committed offset of it any more" in str(error)


@pytest.mark.parametrize(
    "found",
    [
        Facts("id-2", 0, 100, start=BEGUN),
        Facts("id-2", 0, 100, committed=42, start=BEGUN),
        Facts("id-2", 0, 100, committed=42, committed_id="id-1"),  # without a database
        Facts("id-2", 0, 100),  # made again since this process started
        facts(committed=42, committed_id="id-0", start=BEGUN),  # a commit that came after the topic was made again
        facts(committed=42, committed_id="id-1", start=Start("id-0", 0, committed=True)),
    ],
)
def test_a_topic_that_was_made_again_is_another_one(found: Facts) -> None:
    error = lost(found)
    assert (error.reason, error.partition) == (LostBecause.RECREATED, None)
    assert "--topic documents --yes" in str(error)


def test_a_topic_that_is_gone_stops_the_group() -> None:
    error = lost(Facts(None))
    assert error.reason is LostBecause.DELETED
    assert str(error) == str(deleted("audit", "documents"))


SOURCES, RETRY = [("documents", 0), ("documents", 1)], ("audit.retry-1m", 0)
WANTED = [*SOURCES, RETRY]
NOW = {place: facts(low=5, high=100) for place in WANTED}


def test_a_new_group_begins_in_all_partitions_at_once_where_it_has_declared() -> None:
    assert {place: one.offset for place, one in births(WANTED, {}, (), NOW, ()).items()} == dict.fromkeys(WANTED, 5)
    latest = births(WANTED, {}, (), NOW, ["documents"])
    assert {place: one.offset for place, one in latest.items()} == {**dict.fromkeys(SOURCES, 100), RETRY: 5}
    assert not any(one.committed for one in latest.values())


@pytest.mark.parametrize("committed", [(), [("documents", 0)]])
def test_what_comes_later_begins_at_its_beginning(committed: list[tuple[str, int]]) -> None:
    """A partition added later, a retry topic: `latest` would lose what came before their first reader."""
    known = {} if committed else {("documents", 0): Start("id-1", 100, committed=True)}
    now = {**NOW, ("documents", 0): facts(committed=50 if committed else None)}
    made = births([("documents", 1), RETRY], known, committed, now, ["documents"])
    assert {place: one.offset for place, one in made.items()} == {("documents", 1): 5, RETRY: 5}


def test_offsets_that_are_older_than_the_rows_are_taken_over() -> None:
    now = {place: facts(committed=50) for place in WANTED}
    made = births(WANTED, {}, WANTED, now, ["documents"])
    assert made == dict.fromkeys(WANTED, Start("id-1", 50, committed=True))
