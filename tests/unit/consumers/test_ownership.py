"""What a coordinator has given to a member, beside what its client has."""

from offsetzero.consumers.watching.ownership import Advice, Ownership, Shares, shares
from offsetzero.topics.lag import GroupState, Member

HERE, THERE = ("documents", 0), ("documents", 1)


def state(**given: tuple[tuple[str, int], ...]) -> GroupState:
    members = (Member(one, "", "", places) for one, places in given.items())
    return GroupState("audit", "stable", "consumer", tuple(members))


def test_one_member_tells_what_is_nobodys_and_each_what_is_its_own() -> None:
    group, counts = state(b=(HERE,), c=()), {"documents": 2, "audit.redrive": 1}
    assert shares(group, "b", counts) == Shares(frozenset([HERE]), 2, speaks=True)
    assert shares(group, "c", counts) == Shares(frozenset(), 2, speaks=False)
    assert shares(group, "a", counts) is None, "it is no member"


def test_a_member_joins_anew_for_what_it_does_not_get_and_ends_when_that_does_not_help() -> None:
    ownership = Ownership(120)
    assert [ownership.answered(now, [HERE, THERE], [HERE]) for now in (0, 15, 30, 45, 60, 75, 90, 105, 119, 120)] == [
        *[Advice.NOTHING] * 2,
        Advice.JOIN_ANEW,
        *[Advice.NOTHING] * 6,
        Advice.END,
    ]
    assert set(ownership.missing) == {THERE}


def test_what_has_come_is_no_reason_and_what_is_missing_after_it_is_another_one() -> None:
    ownership = Ownership(120)
    assert ownership.answered(0, [HERE, THERE], [HERE]) is Advice.NOTHING
    assert ownership.answered(15, [HERE, THERE], [THERE]) is Advice.NOTHING
    assert ownership.answered(30, [HERE, THERE], []) is Advice.NOTHING, "neither was missing all the time"
    assert ownership.answered(45, [HERE, THERE], [THERE]) is Advice.JOIN_ANEW
    assert ownership.answered(60, [HERE, THERE], [HERE, THERE]) is Advice.NOTHING
    assert ownership.answered(75, [HERE], []) is Advice.NOTHING
    assert ownership.answered(105, [HERE], []) is Advice.JOIN_ANEW, "it has helped before"
    assert ownership.answered(120, [], []) is Advice.NOTHING, "given to another member"


def test_a_coordinator_that_was_away_says_nothing_about_the_time_between() -> None:
    """A partition was given just before, and is in the answer to the first heartbeat after it: none is missing."""
    ownership = Ownership(120)
    assert ownership.answered(0, [HERE], []) is Advice.NOTHING
    ownership.unanswered()
    assert ownership.answered(300, [HERE], []) is Advice.NOTHING
    assert ownership.answered(330, [HERE], []) is Advice.JOIN_ANEW
    ownership.unanswered()
    assert ownership.answered(600, [HERE], []) is Advice.NOTHING
    assert ownership.answered(690, [HERE], []) is Advice.END


def test_a_member_that_could_not_ask_for_long_joins_anew_before_it_ends() -> None:
    ownership = Ownership(120)
    assert ownership.answered(0, [HERE], []) is Advice.NOTHING
    assert ownership.answered(200, [HERE], []) is Advice.JOIN_ANEW
