"""A member's partitions, from assignment to revocation: where each begins, whether it is read, what is committed."""

from collections.abc import Callable, Iterable, Mapping, Sequence

from confluent_kafka import Consumer, TopicPartition

from offsetzero import logs, metrics
from offsetzero.clock import Clock
from offsetzero.consumers.reading import positions
from offsetzero.consumers.reading.assignment import Assignment
from offsetzero.consumers.reading.beginning import Beginning
from offsetzero.consumers.reading.commits import Commits
from offsetzero.consumers.reading.fetching import Fetching
from offsetzero.consumers.reading.opening import Opening
from offsetzero.consumers.record import OwnedPartition, PauseReason, spans
from offsetzero.consumers.working.dispatch import Dispatcher
from offsetzero.store.starts import Place
from offsetzero.topics.names import Names

REVOKE_SECONDS = 5.0  # for what runs
CHECK_SECONDS = 2.0  # for the ids of topics, while a partition is being revoked

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
        self._topics = {**sources, **retries}
        self._group = group
        self._names = names
        self._dispatcher = dispatcher
        self._opening = opening
        self._commits = commits
        self._lost = lost
        self._assignment = Assignment(sources, retries)
        self._beginning = Beginning(
            group, names, frozenset(retries), self._assignment, dispatcher, opening, clock, ahead=ahead
        )
        self._missing: set[str] = set()
        self._has_changed = False

    def attach(self, consumer: Consumer, fetching: Fetching) -> None:
        """Have the client that the partitions are read with; called before it joins."""
        self._consumer = consumer
        self._fetching = fetching
        self._beginning.attach(fetching)

    @property
    def live(self) -> Mapping[tuple[str, int], OwnedPartition]:
        """The stays that records are taken of, by the topic's name on the cluster and the partition."""
        return self._beginning.live

    @property
    def is_waiting(self) -> bool:
        """Whether the answer to a question is awaited, so that the polling thread should not sleep long."""
        return self._beginning.is_waiting

    def tend(self) -> None:
        """Let partitions be read whose beginning is known by now, and commit when the topics' ids are.

        Raises:
            GroupStopped: a partition cannot be read, or must not be committed.
        """
        if self._has_changed:
            # The client has paused all that it has around the callbacks, and its threads may sleep for a second then.
            self._has_changed = False
            self._fetching.wake([(stay, self._fetching.end(stay)) for stay in self.live.values() if not stay.pauses])
        if stays := self._beginning.turn():
            self._commits.commit(self._consumer, stays)
        if (ids := self._opening.ids()) is not None:
            self._check(ids)
            same = self._same(ids, self._assignment.stays())
            self._opening.keep(same)
            self._commits.commit(self._consumer, same)
        self._beginning.check_late()

    def doubt(self, place: tuple[str, int], said: str) -> None:
        """See `Beginning.doubt`."""
        self._beginning.doubt(place, said)

    def keep(self) -> None:
        """Have the database know how far all are, as far as it keeps that."""
        self._opening.keep(self._assignment.stays())

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
        self._beginning.forget(ended)
        self._dispatcher.purge()
        self._opening.ask(begun)
        return [stay for stay in begun if stay.target is not None]

    def contested(self) -> list[OwnedPartition]:
        """All stays of those numbers of which the database has the stay of another member."""
        live = self.live.values()
        numbers = {stay.partition for stay in live if stay.contested}
        return [stay for stay in live if stay.partition in numbers]

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
        self._assignment.member = consumer.memberid() or ""
        self._opening.ask(self._assignment.add(map(self._place, partitions)))
        self._has_changed = True
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
        self._has_changed = True
        log.info("revoked", group=self._group, partitions=spans(partitions))

    def on_lost(self, _consumer: Consumer, partitions: list[TopicPartition]) -> None:
        """End with partitions that another member owns by now: nothing is committed, nothing more appended."""
        places = list(map(self._place, partitions))
        ending = self._assignment.ending(places)
        self._lost()
        self._end(places, ending)
        log.warning("lost", group=self._group, partitions=spans(partitions))

    # ---

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

    def _end(self, places: Iterable[Place], ending: Sequence[OwnedPartition]) -> None:
        self._beginning.forget(ending)
        for stay in ending:
            metrics.remove(metrics.LAG_RECORDS, self._group, stay.topic, str(stay.partition))
        self._fetching.pause(self._assignment.remove(places))
        self._dispatcher.purge()

    def _same(self, ids: Mapping[str, str], stays: Iterable[OwnedPartition]) -> list[OwnedPartition]:
        """Those whose topic is the one that they were read from."""
        return [stay for stay in stays if ids.get(stay.topic) == stay.topic_id]

    def _place(self, one: TopicPartition) -> Place:
        return self._names.strip(one.topic) or one.topic, one.partition
