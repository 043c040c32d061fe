"""The watch of a member: what it asks the cluster, and what it makes of the answers."""

from collections.abc import Callable, Collection, Mapping
from typing import Any

import pytest

from offsetzero.consumers.record import OwnedPartition
from offsetzero.consumers.watching.ownership import Shares
from offsetzero.consumers.watching.watcher import Limits, Watcher
from offsetzero.consumers.working.dispatch import Dispatcher
from offsetzero.errors import GroupStopped, TopicError
from offsetzero.settings import GroupSettings
from offsetzero.store.starts import Place
from support import ManualClock

HERE = ("documents", 0)


class Cluster:
    """Answers at once; it is the member, its workers and its resources for the watch.

    Args:
        given: what the coordinator has given to the member; None where it does not answer.
        end: of the log of what the member has.
    """

    member_id = "m"
    turnovers = 0

    def __init__(self, given: Collection[Place] | None, end: int) -> None:
        self.given, self._end = given, end
        self.stay = OwnedPartition(*HERE[:1], "id", HERE[1])
        self.stay.position = 5
        self.joined_anew = 0

    def stays(self) -> list[OwnedPartition]:
        self.turnovers += 1
        return [self.stay]

    def end(self, stay: OwnedPartition) -> int:
        return 5

    def join_anew(self) -> None:
        self.joined_anew += 1

    def late(self) -> int:
        return 0

    def held_up(self) -> tuple[float, str | None]:
        return 0.0, None

    def spawn(self, work: Callable[[], None], name: str) -> "Cluster":
        work()
        return self

    def start(self) -> None:
        """It is done already."""

    def ends(self, places: Collection[Place]) -> Mapping[Place, int]:
        return dict.fromkeys(places, self._end)

    def shares(self, group: str, topics: Collection[str], member_id: str) -> Shares | None:
        if self.given is None:
            raise TopicError("the coordinator does not answer")
        return Shares(frozenset(self.given), 0, speaks=False)


def watch(cluster: Any, seconds: int) -> None:
    """Look once a second."""
    clock = ManualClock()
    given = cluster, Dispatcher(clock), cluster, 1, Limits(), GroupSettings(stall_seconds=120), clock, cluster
    watcher = Watcher("audit", ["documents"], *given)
    for _ in range(seconds):
        watcher.turn()
        clock.advance(1)


def test_a_partition_that_is_not_fetched_is_stalled_also_where_the_coordinator_is_away() -> None:
    with pytest.raises(GroupStopped, match=r"stalled: documents/0 .* the log goes on behind offset 5"):
        watch(Cluster(None, end=9), 300)
    watch(Cluster(None, end=5), 300)


def test_a_member_that_does_not_get_what_it_was_given_joins_anew_once_and_ends() -> None:
    cluster = Cluster([HERE, ("documents", 1)], end=5)
    watch(cluster, 110)
    assert cluster.joined_anew == 1
    with pytest.raises(GroupStopped, match="has given documents/1 to this member"):
        watch(cluster, 150)
    cluster = Cluster([HERE], end=5)
    watch(cluster, 300)
    assert cluster.joined_anew == 0
