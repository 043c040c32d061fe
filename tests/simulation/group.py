"""The simulated group coordinator: members, range assignment, fencing, committed offsets.

`consumer` is KIP-848: each member is told what to give back and what it gets, and a partition has its next owner
once the last one has given it back. `classic` is the eager protocol: all give back everything, then all are assigned.
A commit is taken from any current member, also for partitions of another one, as Kafka does: the laws look at that.
"""

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Literal, Protocol, TypeAlias

from confluent_kafka import KafkaError

from offsetzero.consumers.watching.ownership import Shares
from simulation.baton import Baton
from simulation.log import Log, Place

SESSION_SECONDS = 3.0
Committed: TypeAlias = tuple[int, str]  # an offset and its metadata
Told: TypeAlias = tuple[Literal["assign", "revoke", "lost"], list[Place]]


class Member(Protocol):
    """What the coordinator needs of a consumer."""

    name: str
    topics: list[str]

    def tell(self, told: Told) -> None:
        """Queue a rebalance event, to be served by the member's next poll."""
        ...


@dataclass
class Seat:
    """A member as the coordinator knows it; a member that was put out and comes back has another seat."""

    member: Member
    order: float
    owned: set[Place] = field(default_factory=set)
    number: int = 0
    epoch: int = 0  # grows with each change of what it owns: what it says of an older time is refused
    told: Told | None = None  # the rebalance event that is on its way, or being served


class Coordinator:
    """One group.

    Args:
        baton: chance and time.
        log: the partitions.
        classic: whether it works by the eager protocol.
        on_commit: told of each offset before it is stored: place, offset, who, and who owns the place.
    """

    def __init__(
        self,
        baton: Baton,
        log: Log,
        *,
        classic: bool,
        on_commit: Callable[[Place, int, str, str | None], None],
    ) -> None:
        self.committed: dict[Place, Committed] = {}
        self._baton = baton
        self._log = log
        self._classic = classic
        self._on_commit = on_commit
        self._seats: list[Seat] = []
        self._joined = 0

    def join(self, member: Member) -> Seat:
        """Take a member in."""
        self._joined += 1
        seat = Seat(member, self._baton.dice.random(), number=self._joined)
        self._seats.append(seat)
        self._seats.sort(key=lambda one: one.order)
        self._baton.say(f"{member.name} joins the group")
        self._settle()
        return seat

    def leave(self, seat: Seat, why: str = "leaves the group") -> None:
        """Let a member go, or put it out; what it owned is free."""
        if seat in self._seats:
            self._seats.remove(seat)
            self._baton.say(f"{seat.member.name} {why}")
            self._settle()

    def shares(self, member_id: str) -> Shares | None:
        """What a member of that name has; None if it is not in the group."""
        found = [seat for seat in self._seats if seat.member.name == member_id]
        return Shares(frozenset(found[0].owned), 0, speaks=False) if found else None

    def knows(self, seat: Seat) -> bool:
        """Whether the member is in the group."""
        return seat in self._seats

    def served(self, seat: Seat, told: Told) -> None:
        """The member has served a rebalance event."""
        if seat.told is not told:
            return
        seat.told = None
        seat.epoch += 1
        kind, places = told
        if kind == "revoke":
            seat.owned.difference_update(places)
        self._settle()

    def owner(self, place: Place) -> Seat | None:
        """Who owns a partition; nobody while it goes from one to the next."""
        return next((seat for seat in self._seats if place in seat.owned), None)

    def commit(self, seat: Seat, offsets: dict[Place, Committed]) -> KafkaError | None:
        """Store offsets of a current member."""
        if seat not in self._seats:
            return KafkaError(KafkaError.UNKNOWN_MEMBER_ID)
        for place, offset in offsets.items():
            owner = self.owner(place)
            self._on_commit(place, offset[0], seat.member.name, owner.member.name if owner else None)
            self.committed[place] = offset
        return None

    def accepts(self, metadata: tuple[int, int]) -> bool:
        """Whether a member is what it says of itself, so that a transaction may commit for it."""
        return any((seat.number, seat.epoch) == metadata for seat in self._seats)

    def store(self, member: str, offsets: dict[Place, Committed]) -> None:
        """Store what a transaction has committed; who owned it was asked when it was sent."""
        for place, offset in offsets.items():
            self._on_commit(place, offset[0], member, member)
            self.committed[place] = offset

    def _target(self) -> dict[int, set[Place]]:
        """`range`: neighbours of the partition numbers, the same numbers of every topic."""
        count, seats = self._log.partitions, self._seats
        target: dict[int, set[Place]] = {}
        for at, seat in enumerate(seats):
            numbers = range(at * count // len(seats), (at + 1) * count // len(seats))
            target[id(seat)] = {(topic, number) for topic in seat.member.topics for number in numbers}
        return target

    def _settle(self) -> None:
        if self._classic:
            self._settle_eagerly()
            return
        target = self._target()
        for seat in self._seats:
            if seat.told:
                continue
            too_much = seat.owned - target[id(seat)]
            if too_much:
                self._tell(seat, ("revoke", sorted(too_much)))
                continue
            taken = {place for one in self._seats for place in one.owned}
            if free := target[id(seat)] - taken:
                seat.owned |= free
                self._tell(seat, ("assign", sorted(free)))

    def _settle_eagerly(self) -> None:
        target = self._target()
        if all(seat.owned == target[id(seat)] for seat in self._seats):
            return
        for seat in self._seats:
            if seat.owned and not seat.told:
                self._tell(seat, ("revoke", sorted(seat.owned)))
        if any(seat.owned or seat.told for seat in self._seats):
            return
        for seat in self._seats:
            seat.owned = set(target[id(seat)])
            self._tell(seat, ("assign", sorted(seat.owned)))

    def _tell(self, seat: Seat, told: Told) -> None:
        seat.told = told
        self._baton.after(self._baton.hop(), lambda: seat.member.tell(told) if seat in self._seats else None)
