"""How a partition that was assigned comes to be read: where, and not before what waits of it is known."""

from collections.abc import Iterable, Sequence

from offsetzero import logs
from offsetzero.clock import Clock
from offsetzero.consumers.reading import positions
from offsetzero.consumers.reading.assignment import Assignment
from offsetzero.consumers.reading.fetching import Fetching
from offsetzero.consumers.reading.opening import Opening
from offsetzero.consumers.reading.positions import Facts
from offsetzero.consumers.reading.pressure import MAX_SPAN
from offsetzero.consumers.record import OwnedPartition, PauseReason
from offsetzero.consumers.working.dispatch import Dispatcher
from offsetzero.errors import GroupStopped, PositionLost
from offsetzero.topics.names import Names

SUSPECTS = 2 * MAX_SPAN  # offsets that may have been begun: a marker of a transaction may follow each record
LATE_SECONDS = 10.0  # for the facts about an offset that the broker has refused, or for the client to begin

log = logs.get(__name__)


class Beginning:
    """Belongs to the polling thread.

    Args:
        group: for messages.
        names: of topics on the cluster.
        retries: the group's retry topics, by our names.
        assignment: what this member owns.
        dispatcher: has the records of the partitions.
        opening: finds out where partitions begin.
        clock: bounds waits.
        ahead: whether sources are read only once it is known what waits in the retry topics.
    """

    def __init__(
        self,
        group: str,
        names: Names,
        retries: frozenset[str],
        assignment: Assignment,
        dispatcher: Dispatcher,
        opening: Opening,
        clock: Clock,
        *,
        ahead: bool,
    ) -> None:
        self.live: dict[tuple[str, int], OwnedPartition] = {}
        """The stays that records are taken of, by the topic's name on the cluster and the partition."""
        self._group = group
        self._names = names
        self._retries = retries
        self._assignment = assignment
        self._dispatcher = dispatcher
        self._opening = opening
        self._clock = clock
        self._ahead = ahead
        self._reading_ahead: list[tuple[OwnedPartition, int]] = []  # sources, with the ends of their logs
        self._begun: list[tuple[OwnedPartition, Facts]] = []  # known, and the client has not begun with them
        self._doubted: dict[OwnedPartition, str] = {}
        self._late: dict[OwnedPartition, tuple[float, str]] = {}  # until when it may be so, and what is wrong

    def attach(self, fetching: Fetching) -> None:
        """Have what the partitions are read with; called before the first of them is assigned."""
        self._fetching = fetching

    @property
    def is_waiting(self) -> bool:
        """Whether the answer to a question is awaited, so that the polling thread should not sleep long."""
        return bool(self._begun or self._reading_ahead) or any(one.is_opening for one in self._assignment.stays())

    def turn(self) -> Sequence[OwnedPartition]:
        """Let partitions be read whose beginning is known by now; returns those of which it has become known.

        Raises:
            GroupStopped: a partition cannot be read.
        """
        found = [*self._begun, *self._opening.answers()]
        if found:
            self._begun = []
            opened = [(stay, facts.high) for stay, facts in found if self._open(stay, facts)]
            self._fetching.resume([(stay, high) for stay, high in opened if not stay.pauses])
            self._reading_ahead += [(stay, high) for stay, high in opened if PauseReason.COPIES in stay.pauses]
        if self._reading_ahead:
            self._begin_sources()
        return [stay for stay, _ in found]

    def check_late(self) -> None:
        """See that nothing takes too long.

        Raises:
            GroupStopped: it does; the message says what is wrong.
        """
        for deadline, said in self._late.values():
            if self._clock.monotonic() > deadline:
                raise GroupStopped(f"group {self._group}: {said}")

    def doubt(self, place: tuple[str, int], said: str) -> None:
        """The broker has refused the offset of a partition; the client reads it no more, and says so only once."""
        stay = self.live.pop(place, None)
        if stay is None:  # of a stay that has ended
            log.warning("consumer error", group=self._group, partition=f"{place[0]}/{place[1]}", error=said)
            return
        stay.pauses.add(PauseReason.OPENING)
        self._doubted[stay] = f"{stay} at offset {stay.position}: {said}"
        self._late[stay] = self._clock.monotonic() + LATE_SECONDS, self._doubted[stay]
        self._opening.ask([stay])

    def forget(self, stays: Iterable[OwnedPartition]) -> None:
        """Take no more records of these."""
        for stay in stays:
            self.live.pop((self._names.topic(stay.topic), stay.partition), None)
            self._doubted.pop(stay, None)
            self._late.pop(stay, None)

    # ---

    def _open(self, stay: OwnedPartition, facts: Facts) -> bool:
        """Choose where a partition is read from; true when it may be read now."""
        if not stay.active or self._assignment.get(stay.place) is not stay:
            return False
        doubt = self._doubted.pop(stay, None)
        try:
            at = stay.resume_at if stay.target is None else positions.within(facts, stay.target)
            offset = positions.decide(self._group, stay, facts, stay.position if doubt else at)
        except PositionLost as error:
            self._forsake(error)  # what is to come, the last commit, leaves it out
            raise
        if doubt:
            raise GroupStopped(f"group {self._group}: {doubt}")
        if why := self._fetching.place_at(stay, offset):
            self._begun.append((stay, facts))
            said = f"{stay}: the client does not begin to read it at offset {offset}: {why}"
            self._late.setdefault(stay, (self._clock.monotonic() + LATE_SECONDS, said))
            return False
        self._late.pop(stay, None)
        # An offset that does not name its topic is committed once more, with the name; that of a replay in any case:
        # nobody knows whether an older commit was on its way when Kafka was asked.
        stay.begin(offset, facts.committed if facts.committed_id and stay.target is None else None)
        stay.unproven = facts.start is not None and not facts.start.committed
        if stay.unproven and facts.committed is not None:
            self._opening.confirm([stay.place])
            stay.unproven = False
        stay.name = facts.stay
        stay.forced = facts.forced
        stay.kept = facts.kept.offset if facts.kept is not None else None
        if facts.died and not (stay.before and facts.start is not None and facts.start.stay == stay.before):
            stay.suspects_end = facts.high
            if stay.topic not in self._retries:  # there no bound holds: the lowest may wait for a day
                stay.suspects_end = min(facts.high, offset + SUSPECTS)
            if stay.suspects_end > offset:
                log.warning(
                    "a member did not leave in good order: each start of what it may have begun is marked",
                    group=self._group,
                    partition=str(stay),
                    offsets=f"{offset} to {stay.suspects_end - 1}",
                )
        stay.pauses.discard(PauseReason.OPENING)
        stay.until = facts.high
        for hold in facts.holds:
            self._dispatcher.hold(stay.order, hold)
        if self._ahead and stay.topic not in self._retries:
            stay.pauses.add(PauseReason.COPIES)
        self.live[self._names.topic(stay.topic), stay.partition] = stay
        return True

    def _begin_sources(self) -> None:
        """Read sources, and let copies run, when the retry partitions were read up to where they ended at first.

        All that was acknowledged to an earlier owner lies before that.
        """
        rest, known = [], []
        for stay, high in self._reading_ahead:
            if not stay.active:
                continue
            if all(tier.position is not None and tier.position >= tier.until for tier in stay.tiers):
                stay.pauses.discard(PauseReason.COPIES)
                for order in stay.tiers[0].orders.values():
                    order.is_complete = True
                known.append((stay, high))
            else:
                rest.append((stay, high))
        self._reading_ahead = rest
        self._fetching.resume([(stay, high) for stay, high in known if not stay.pauses])

    def _forsake(self, error: PositionLost) -> None:
        """Commit nothing more of what cannot be read any more."""
        for stay in self._assignment.stays():
            if stay.topic == error.topic and error.partition in (None, stay.partition):
                self.live.pop((self._names.topic(stay.topic), stay.partition), None)
                stay.revoke()
