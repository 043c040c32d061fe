"""Of which groups the positions may be moved: of those that are known to have stopped."""

import pytest

from offsetzero.consumers.reset import check_stopped
from offsetzero.errors import GroupStopped
from offsetzero.topics.lag import GroupState, Member

MEMBER = Member("m", "c", "/h", ())


@pytest.mark.parametrize("state", ["empty", "dead"])
def test_a_group_without_members_has_stopped(state: str) -> None:
    check_stopped(GroupState("audit", state, "consumer", ()))


@pytest.mark.parametrize(
    ("state", "members", "said"),
    [
        ("stable", (MEMBER,), "group audit has members (it is stable): stop them first"),
        ("completing_rebalancing", (), "group audit has members (it is completing_rebalancing): stop them first"),
        ("unknown", (MEMBER,), "group audit has members: stop them first"),
        ("unknown", (), "its coordinator does not say whether it has stopped; stop its members, and try again"),
    ],
)
def test_another_one_is_refused(state: str, members: tuple[Member, ...], said: str) -> None:
    """The client has no word for two states of KIP-848, Assigning and Reconciling: these say `unknown`."""
    with pytest.raises(GroupStopped) as refused:
        check_stopped(GroupState("audit", state, "consumer", members))
    assert said in str(refused.value)
