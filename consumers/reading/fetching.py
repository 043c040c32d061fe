"""What is asked of the client's fetching: begin paused, pause, read on from an offset; with the client's pitfalls."""

import contextlib
from collections.abc import Iterable, Sequence

from confluent_kafka import Consumer, KafkaException, TopicPartition

from offsetzero.consumers.record import OwnedPartition
from offsetzero.topics.names import Names


class Fetching:
    """Belongs to the polling thread.

    Args:
        consumer: the client.
        names: of topics on the cluster.
        incremental: whether the client's lists are what is added and taken away (KIP-848).
    """

    def __init__(self, consumer: Consumer, names: Names, incremental: bool) -> None:
        self._consumer = consumer
        self._names = names
        self._incremental = incremental

    def place(self, stay: OwnedPartition, offset: int | None = None) -> TopicPartition:
        """A partition, and an offset, as the client has them."""
        name = self._names.topic(stay.topic)
        return TopicPartition(name, stay.partition) if offset is None else TopicPartition(name, stay.partition, offset)

    def take(self, partitions: Sequence[TopicPartition]) -> None:
        """Take over what was assigned, without reading a record of it; called in the client's callback.

        Paused before it is assigned, so that nothing is fetched from a place that was not chosen. The client refuses
        to pause what it has not heard of, and hears of a partition when its watermarks are asked for. The offset is
        any that is absolute: the answer to a logical one may come after a `seek`, and would win over it.
        """
        for one in partitions:
            self._consumer.get_watermark_offsets(one, cached=True)
        if partitions:
            self._consumer.pause(list(partitions))
        taken = [TopicPartition(one.topic, one.partition, 0) for one in partitions]
        if self._incremental:
            self._consumer.incremental_assign(taken)
        else:
            self._consumer.assign(taken)

    def pause(self, stays: Iterable[OwnedPartition]) -> None:
        """Fetch nothing more of these; what was fetched and not handed out is thrown away."""
        if places := [self.place(stay) for stay in stays]:
            self._consumer.pause(places)

    def place_at(self, stay: OwnedPartition, offset: int) -> str:
        """Choose where a paused partition is fetched from.

        What was fetched from another place, and not handed out, is thrown away.

        Returns:
            Why that cannot be yet, empty when it is done: the client may not have begun with the partition.
        """
        try:
            self._consumer.seek(self.place(stay, offset))
        except KafkaException as error:
            return str(error.args[0].str())
        return ""

    def resume(self, stays: Sequence[tuple[OwnedPartition, int]]) -> None:
        """Fetch paused partitions again, at once.

        The client's thread for the broker sleeps for up to a second when nothing is to be fetched, and to resume does
        not wake it; to seek does, except to offset 0.

        Args:
            stays: each at its position, behind which nothing was handed out, with an offset that its log is known to
                reach, 0 or less for none.
        """
        if stays:
            self._consumer.resume([self.place(stay) for stay, _ in stays])
        self.wake(stays)

    def wake(self, stays: Iterable[tuple[OwnedPartition, int]]) -> None:
        """Have the client's threads look at once what is to be fetched of these, which are not paused; see `resume`."""
        for stay, end in stays:
            at = stay.position if stay.cursor is None else stay.cursor
            with contextlib.suppress(KafkaException):  # not woken: a moment later, then
                if at == 0 and end > 0:
                    self._consumer.seek(self.place(stay, 1))
                self._consumer.seek(self.place(stay, at))

    def end(self, stay: OwnedPartition) -> int:
        """The end of the log as it was last seen when something was fetched; -1 when that is not known."""
        _, high = self._consumer.get_watermark_offsets(self.place(stay), cached=True)
        return high if high >= 0 else -1
