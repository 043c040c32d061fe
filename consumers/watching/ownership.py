"""What the coordinator says that a member has, beside what its client has: a partition may be between the two for ever.

A coordinator of KIP-848 tells an assignment once, in the answer to the heartbeat that changes it, and again only to who
sends all about itself, as clients are to after an error. librdkafka (2.16) does so when it looks for the coordinator
anew, not when an answer is late: the time-out of a heartbeat is the interval of heartbeats, and partitions that others
have given up come without a new epoch, so that no later heartbeat is refused either. The coordinator then takes the
partition for assigned, the client has never heard of it, and nobody reads it.
"""

from collections.abc import Collection, Mapping
from dataclasses import dataclass

from offsetzero.store.starts import Place
from offsetzero.topics.lag import GroupState


@dataclass(frozen=True, slots=True)
class Shares:
    """A group as one of its members sees it in an answer of the coordinator.

    Attributes:
        mine: what the coordinator has given to this member.
        nobodys: partitions of the group's topics that it has given to nobody.
        speaks: whether this member is the one that tells what is nobody's.
    """

    mine: frozenset[Place]
    nobodys: int
    speaks: bool


def shares(state: GroupState, member_id: str, counts: Mapping[str, int]) -> Shares | None:
    """Read an answer.

    Args:
        state: the answer.
        member_id: of the member that asks.
        counts: the partitions of each of the group's topics.

    Returns:
        None when the coordinator does not know the member.
    """
    given = {member.id: frozenset(member.assignment) for member in state.members}
    if member_id not in given:
        return None
    owned = frozenset[Place]().union(*given.values())
    every = {(topic, number) for topic, count in counts.items() for number in range(count)}
    return Shares(given[member_id], len(every - owned), member_id == min(given))


class Ownership:
    """Remembers since when a partition is missing."""

    def __init__(self) -> None:
        self._since: dict[Place, float] = {}

    def answered(self, now: float, given: Collection[Place], own: Collection[Place]) -> dict[Place, float]:
        """Compare an answer of the coordinator with what the client has now.

        Args:
            now: monotonic seconds.
            given: what the coordinator says that this member has.
            own: what the client has.

        Returns:
            For how many seconds each partition has been given and is not had: in this answer and all before it.
        """
        self._since = {place: self._since.get(place, now) for place in given if place not in own}
        return {place: now - since for place, since in self._since.items()}
