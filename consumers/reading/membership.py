"""A member's partitions, from assignment to revocation: where each begins, whether it is read, what is committed."""

from collections.abc import Callable, Iterable, Mapping, Sequence

from confluent_kafka import Consumer, TopicPartition

from offsetzero import logs, metrics
from offsetzero.clock import Clock
from offsetzero.consumers.reading import positions
from offsetzero.consumers.reading.assignment import Assignment
from offsetzero.consumers.reading.commits import Commits
from offsetzero.consumers.reading.fetching import Fetching
from offsetzero.consumers.reading.opening import Opening
from offsetzero.consumers.reading.positions import Facts
from offsetzero.consumers.reading.pressure import MAX_SPAN
from offsetzero.consumers.record import OwnedPartition, PauseReason, spans
from offsetzero.consumers.working.dispatch import Dispatcher
from offsetzero.errors import GroupStopped, PositionLost
from offsetzero.store.starts import Place
from offsetzero.topics.names import Names

REVOKE_SECONDS = 5.0  # for what runs
SUSPECTS = 2 * MAX_SPAN  # offsets that may have been begun: a marker of a transaction may follow each record
CHECK_SECONDS = 2.0  # for the ids of topics, while a partition is being revoked
LATE_SECONDS = 10.0  # for the facts about an offset that the broker has refused, or for the client to begin

log = logs.get(__name__)


class Membership:
    """What one member of a group owns; belongs to the polling thread, like the callbacks that it is given to.

    Args:
        sources: the source topics of the group, by our names, with their ids.
        retries: its retry topics, likewise.
        group: for messages.
        names: of topics on the cluster.
        dispatcher: has the records of the partitions.
        opening: finds out where partitions begin.
        commits: commits.
        clock: bounds waits.
        lost: called when partitions are lost, to give up appends on behalf of them.
        ahead: whether sources are read only once it is known what waits in the retry topics.
    """

    def __init__(
        self,
        sources: Mapping[str, str],
        retries: Mapping[str, str],
        group: str,
        names: Names,
        dispatcher: Dispatcher,
        opening: Opening,
        commits: Commits,
        clock: Clock,
        lost: Callable[[], None],
        *,
        ahead: bool,
    ) -> None:
        self.live: dict[tuple[str, int], OwnedPartition] = {}
        """The stays that records are taken of, by the topic's name on the cluster and the partition."""
        self._topics = {**sources, **retries}
        self._retries = frozenset(retries)
        self._ahead = ahead
        self._group = group
        self._names = names
        self._dispatcher = dispatcher
        self._opening = opening
        self._commits = commits
        self._clock = clock
        self._lost = lost
        self._assignment = Assignment(sources, retries)
        self._reading_ahead: list[tuple[OwnedPartition, int]] = []  # sources, with the ends of their logs
        self._begun: list[tuple[OwnedPartition, Facts]] = []  # known, and the client has not begun with them
        self._doubted: dict[OwnedPartition, str] = {}
        self._late: dict[OwnedPartition, tuple[float, str]] = {}  # until when it may be so, and what is wrong
        self._missing: set[str] = set()

    def attach(self, consumer: Consumer, fetching: Fetching) -> None:
        """Have the client that the partitions are read with; called before it joins."""
        self._consumer = consumer
        self._fetching = fetching

    @property
    def is_waiting(self) -> bool:
        """Whether the answer to a question is awaited, so that the polling thread should not sleep long."""
        return bool(self._begun or self._reading_ahead) or any(one.is_opening for one in self._assignment.stays())

    def tend(self) -> None:
        """Let partitions be read whose beginning is known by now, and commit when the topics' ids are.

        Raises:
            GroupStopped: a partition cannot be read, or must not be committed.
        """
        if found := [*self._begun, *self._opening.answers()]:
            self._begun = []
            opened = [(stay, facts.high) for stay, facts in found if self._open(stay, facts)]
            self._fetching.resume([(stay, high) for stay, high in opened if not stay.pauses])
            self._reading_ahead += [(stay, high) for stay, high in opened if PauseReason.COPIES in stay.pauses]
            self._commits.commit(self._consumer, [stay for stay, _ in found])
        if self._reading_ahead:
            self._begin_sources()
        if (ids := self._opening.ids()) is not None:
            self._check(ids)
            same = self._same(ids, self._assignment.stays())
            self._opening.keep(same)
            self._commits.commit(self._consumer, same)
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

    def commit_last(self) -> None:
        """Ask for the last commit; its answer is awaited by the caller."""
        self._opening.check()
        if (ids := self._opening.ids(CHECK_SECONDS)) is not None:
            same = self._same(ids, self._assignment.stays())
            self._opening.keep(same, CHECK_SECONDS)
            self._commits.commit(self._consumer, same, leaving=True)

    def stays_of(self, number: int) -> list[OwnedPartition]:
        """This partition of every topic of the group, if all of them are owned; else nothing."""
        if not self._assignment.is_complete(number):
            return []
        return [stay for topic in self._topics if (stay := self._assignment.get((topic, number))) is not None]

    def restart(self, number: int, targets: Mapping[str, int]) -> list[OwnedPartition]:
        """Begin anew with partitions that this member has, as if they were assigned; the group does not notice.

        Args:
            number: of the partitions, all of which are owned; they are paused, and nothing of them runs.
            targets: where these topics are to be read from, as far as the log reaches; the others are read on.

        Returns:
            The stays that begin at targets. They are read once `PauseReason.REPLAY` is taken from them.
        """
        ended, begun = self._assignment.restart(number, targets)
        self._forget(ended)
        self._dispatcher.purge()
        self._opening.ask(begun)
        return [stay for stay in begun if stay.target is not None]

    def commit(self, stays: Iterable[OwnedPartition]) -> None:
        """Ask the broker to store where these stand, if that has changed."""
        self._commits.commit(self._consumer, stays)

    def give_up(self) -> None:
        """Let the revocation that is to come commit nothing: nobody answers."""
        for stay in self._assignment.stays():
            stay.committed = stay.committable()
            stay.has_left = True

    def stays(self) -> list[OwnedPartition]:
        """All that is owned, worked or not."""
        return self._assignment.stays()

    def measure(self) -> None:
        """Set the gauges of lag, and of what is paused and why."""
        paused = dict.fromkeys(PauseReason, 0)
        for stay in self._assignment.stays():
            for reason in stay.pauses:
                paused[reason] += 1
            position, end = stay.committable(), self._fetching.end(stay)
            if position is not None and end >= 0:
                number = str(stay.partition)
                metrics.LAG_RECORDS.labels(self._group, stay.topic, number).set(max(0, end - position))
        for reason, count in paused.items():
            metrics.PAUSED.labels(self._group, reason).set(count)

    # --- callbacks of the client: the lists are what is added or taken away, and may be empty

    def on_assign(self, consumer: Consumer, partitions: list[TopicPartition]) -> None:
        """Begin with partitions: paused, until it is known where."""
        if twice := [one for one in partitions if self._assignment.get(self._place(one)) is not None]:
            self.on_revoke(consumer, twice)
        self._fetching.take(partitions)
        self._opening.ask(self._assignment.add(map(self._place, partitions)))
        log.info("assigned", group=self._group, partitions=spans(partitions))

    def on_revoke(self, consumer: Consumer, partitions: list[TopicPartition]) -> None:
        """End with partitions, and with what has to rest without them: what runs is awaited, then committed."""
        places = list(map(self._place, partitions))
        if ending := self._assignment.ending(places):
            self._opening.check()
            still = self._dispatcher.wait_idle(REVOKE_SECONDS, ending)
            if still:
                log.warning("revoked while handlers run", group=self._group, records=[str(record) for record in still])
            if (ids := self._opening.ids(CHECK_SECONDS)) is not None:
                same = self._same(ids, ending)
                self._opening.keep(same, CHECK_SECONDS)
                self._commits.commit_now(consumer, same)
            else:
                log.warning("not committed, the cluster does not answer", group=self._group)
            self._end(places, ending)
        log.info("revoked", group=self._group, partitions=spans(partitions))

    def on_lost(self, _consumer: Consumer, partitions: list[TopicPartition]) -> None:
        """End with partitions that another member owns by now: nothing is committed, nothing more appended."""
        places = list(map(self._place, partitions))
        ending = self._assignment.ending(places)
        self._lost()
        self._end(places, ending)
        log.warning("lost", group=self._group, partitions=spans(partitions))

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

    def _check(self, ids: Mapping[str, str]) -> None:
        for topic, known in self._topics.items():
            now = ids.get(topic)
            if now == known:
                self._missing.discard(topic)
            elif now is None and topic not in self._missing:
                self._missing.add(topic)  # said once, perhaps by a broker that has not caught up yet
            else:
                group = self._group
                raise positions.recreated(group, topic, known, now) if now else positions.deleted(group, topic)

    def _forsake(self, error: PositionLost) -> None:
        """Commit nothing more of what cannot be read any more."""
        for stay in self._assignment.stays():
            if stay.topic == error.topic and error.partition in (None, stay.partition):
                self.live.pop((self._names.topic(stay.topic), stay.partition), None)
                stay.revoke()

    def _forget(self, stays: Iterable[OwnedPartition]) -> None:
        for stay in stays:
            self.live.pop((self._names.topic(stay.topic), stay.partition), None)
            self._doubted.pop(stay, None)
            self._late.pop(stay, None)

    def _end(self, places: Iterable[Place], ending: Sequence[OwnedPartition]) -> None:
        self._forget(ending)
        for stay in ending:
            metrics.remove(metrics.LAG_RECORDS, self._group, stay.topic, str(stay.partition))
        self._fetching.pause(self._assignment.remove(places))
        self._dispatcher.purge()

    def _same(self, ids: Mapping[str, str], stays: Iterable[OwnedPartition]) -> list[OwnedPartition]:
        """Those whose topic is the one that they were read from."""
        return [stay for stay in stays if ids.get(stay.topic) == stay.topic_id]

    def _place(self, one: TopicPartition) -> Place:
        return self._names.strip(one.topic) or one.topic, one.partition
