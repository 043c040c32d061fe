"""What a coordinator has given to a member, beside what its client has."""

from offsetzero.consumers.watching.ownership import Ownership, Shares, shares
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


def test_a_partition_is_missing_from_the_first_answer_that_gives_it_to_the_first_look_that_has_it() -> None:
    ownership = Ownership()
    assert ownership.answered(10, [HERE], [HERE]) == {}
    assert ownership.answered(20, [HERE, THERE], [HERE]) == {THERE: 0}
    assert ownership.answered(50, [HERE, THERE], []) == {HERE: 0, THERE: 30}
    assert ownership.answered(60, [HERE, THERE], [THERE]) == {HERE: 10}
    assert ownership.answered(70, [THERE], []) == {THERE: 0}, "it was there in between"
    assert ownership.answered(80, [], []) == {}, "given to another member"
