"""Commits of offsets: the lowest undone record of each partition, and what became of the last commit."""

from collections.abc import Callable, Iterable

from confluent_kafka import Consumer, KafkaError, KafkaException, TopicPartition

from offsetzero import logs
from offsetzero.clock import Clock
from offsetzero.consumers.record import OwnedPartition
from offsetzero.store.starts import Place
from offsetzero.topics.names import Names
from offsetzero.topics.offsets import mark

log = logs.get(__name__)


class Commits:
    """Commits for one member; belongs to the polling thread.

    Args:
        group: for log lines.
        names: of topics on the cluster.
        clock: bounds waits.
        proven: told of partitions whose first commit is acknowledged.
    """

    def __init__(self, group: str, names: Names, clock: Clock, proven: Callable[[list[Place]], None]) -> None:
        self._group = group
        self._names = names
        self._clock = clock
        self._proven = proven
        self._unanswered = 0
        self._sent: dict[tuple[str, int], OwnedPartition] = {}

    def attach(self, consumer: Consumer) -> None:
        """Called with the client before it joins the group; nothing to do."""

    def refresh(self, consumer: Consumer) -> None:
        """Called with the client in each round; nothing to do."""

    def commit(self, consumer: Consumer, stays: Iterable[OwnedPartition], *, leaving: bool = False) -> None:
        """Ask the broker to store where each partition stands, if that has changed; returns before it has.

        One question at a time: of two on their way the client may repeat the older one last.

        Args:
            consumer: the member.
            stays: of which partitions.
            leaving: whether they end now, in good order: then that is stored, too, unless suspects are left to the
                next owner.
        """
        if self._unanswered > 0:
            return
        offsets = self._changed(stays, leaving=leaving)
        if not offsets:
            return
        try:
            consumer.commit(offsets=offsets, asynchronous=True)
            self._unanswered += 1
        except KafkaException as error:
            self._failed(offsets, error.args[0])

    def commit_now(self, consumer: Consumer, stays: Iterable[OwnedPartition]) -> None:
        """The same with stays that end now, and wait for the answer: while they are being revoked there is no later.

        The broker has just taken part in the rebalance, so the answer is near.
        """
        offsets = self._changed(stays, leaving=True)
        if not offsets:
            return
        try:
            self._look_at(None, consumer.commit(offsets=offsets, asynchronous=False))
        except KafkaException as error:
            self._failed(offsets, error.args[0])

    def catch_up(self, consumer: Consumer, seconds: float) -> bool:
        """Wait until another commit may be asked for, `seconds` at most; False when the time ran out."""
        deadline = self._clock.monotonic() + seconds
        while self._unanswered > 0 and self._clock.monotonic() < deadline:
            consumer.poll(0.05)
        return self._unanswered == 0

    def settle(self, consumer: Consumer, seconds: float) -> bool:
        """Wait for the answer to the last commit of this member, `seconds` at most; False when none came."""
        return self.catch_up(consumer, seconds)

    def on_commit(self, error: KafkaError | None, partitions: list[TopicPartition]) -> None:
        """The client's callback, called from `poll`."""
        self._unanswered -= 1
        self._look_at(error, partitions)

    def _changed(self, stays: Iterable[OwnedPartition], *, leaving: bool) -> list[TopicPartition]:
        offsets = []
        for stay in stays:
            offset = stay.committable()
            leaves = leaving and stay.is_entered and not stay.has_suspects
            if offset is not None and (offset != stay.committed or leaves):
                stay.committed = offset
                stay.has_left = stay.has_left or leaves
                topic = self._names.topic(stay.topic)
                self._sent[topic, stay.partition] = stay
                metadata = mark(stay.topic_id, stay.name if leaves else "")
                offsets.append(TopicPartition(topic, stay.partition, offset, metadata))
        return offsets

    def _look_at(self, error: KafkaError | None, partitions: list[TopicPartition]) -> None:
        failed = [place for place in partitions if error or place.error]
        if failed:
            self._failed(failed, error or failed[0].error)
        proven = []
        for place in partitions:
            stay = self._sent.get((place.topic, place.partition))
            if stay is None or error or place.error:
                continue
            stay.acknowledged = place.offset
            if stay.unproven:
                stay.unproven = False
                proven.append(stay.place)
        if proven:
            self._proven(proven)

    def _failed(self, partitions: list[TopicPartition], error: object) -> None:
        for place in partitions:
            if (stay := self._sent.get((place.topic, place.partition))) is not None:
                stay.committed = None  # so that the next round tries again
                stay.has_left = False
        shown = [f"{place.topic}/{place.partition}" for place in partitions]
        log.warning("commit failed", group=self._group, partitions=shown, error=str(error))
