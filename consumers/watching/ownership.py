"""What the coordinator says that a member has, beside what its client has: a partition may be between the two for ever.

A coordinator of KIP-848 tells an assignment once, in the answer to the heartbeat that changes it, and again only to who
sends all about itself, as clients are to after an error. librdkafka (2.16) does so when it looks for the coordinator
anew, not when an answer is late: the time-out of a heartbeat is the interval of heartbeats, and partitions that others
have given up come without a new epoch, so that no later heartbeat is refused either. The coordinator then takes the
partition for assigned, the client has never heard of it, and nobody reads it.
"""

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from enum import Enum, auto

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


class Advice(Enum):
    """What a member is to do about partitions that it does not get."""

    NOTHING = auto()
    JOIN_ANEW = auto()
    END = auto()


class Ownership:
    """Remembers since when a partition is missing, in all answers of the coordinator one after the other.

    A partition that has just been given is missing, too, until the next heartbeat: so nothing is concluded from a time
    in which the coordinator was away, before and after which something may have been given.

    Args:
        seconds: for a quarter of that time something may be missing, then the member joins anew; when something is
            missing for the rest of it since then, the member ends.
    """

    def __init__(self, seconds: float) -> None:
        self._seconds = seconds
        self._since: dict[Place, float] = {}
        self._joined_anew = False

    @property
    def missing(self) -> Collection[Place]:
        """What the last answer gave to this member, whose client did not have it."""
        return self._since.keys()

    def unanswered(self) -> None:
        """The coordinator did not answer, or does not know the member."""
        self._since.clear()

    def answered(self, now: float, given: Collection[Place], own: Collection[Place]) -> Advice:
        """Compare an answer of the coordinator with what the client has now.

        Args:
            now: monotonic seconds.
            given: what the coordinator says that this member has.
            own: what the client has.
        """
        self._since = {place: self._since.get(place, now) for place in given if place not in own}
        if not self._since:
            self._joined_anew = False
            return Advice.NOTHING
        longest, quarter = now - min(self._since.values()), self._seconds / 4
        if self._joined_anew:
            return Advice.END if longest >= self._seconds - quarter else Advice.NOTHING
        if longest < quarter:
            return Advice.NOTHING
        self._joined_anew = True
        self._since = dict.fromkeys(self._since, now)
        return Advice.JOIN_ANEW
