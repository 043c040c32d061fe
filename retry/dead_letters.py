"""Reads a group's dead-letter topic."""

from collections import deque
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace
from types import TracebackType
from typing import Self

from confluent_kafka import Consumer, KafkaError, KafkaException, Message, TopicPartition

from offsetzero.client_log import LOGGER
from offsetzero.clock import SYSTEM
from offsetzero.errors import TopicError
from offsetzero.retry import pointers
from offsetzero.retry.letter import DeadLetter, of_message
from offsetzero.retry.pointers import PointerLost
from offsetzero.settings import Settings
from offsetzero.topics import admin, offsets
from offsetzero.topics.catalogue import DLQ
from offsetzero.topics.names import Names

__all__ = ["DeadLetter", "LetterReader", "groups", "of_message", "partitions", "read"]

STALL_SECONDS = 15.0
_POLL_SECONDS = 0.5
_SKIP = 1_000
"""Records in a row that are not wanted, from which on a seek is cheaper: it throws away what was fetched."""


class LetterReader:
    """A consumer that joins no group and commits nothing; a context manager.

    Args:
        settings: name the cluster.
    """

    def __init__(self, settings: Settings) -> None:
        self._settings = settings
        self._names = Names(settings.kafka.namespace)
        self._consumer = Consumer(
            {
                **settings.kafka.client_config(),
                "group.id": self._names.group("dead-letters.reader"),  # never joined
                "enable.auto.commit": False,
                "enable.auto.offset.store": False,
                "enable.partition.eof": True,
                "auto.offset.reset": "earliest",  # what retention has taken is no more
                "isolation.level": "read_committed",
                "fetch.wait.max.ms": 50,
                "fetch.message.max.bytes": 256 * 1024,  # `fetch` reads a little of many partitions
            },
            logger=LOGGER,
        )

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._consumer.close()

    def read(self, group: str, spans: Mapping[int, tuple[int, int]]) -> Iterator[DeadLetter]:
        """The dead letters of a group between offsets, whatever comes meanwhile.

        Args:
            group: the group's name.
            spans: by partition, the first offset, and the one behind the last.

        Raises:
            TopicError: the broker refuses, or sends nothing for too long.
        """
        left = {partition: end for partition, (first, end) in spans.items() if first < end}
        topic = self._assign(group, {partition: spans[partition][0] for partition in left})
        while left:
            message = self._poll(topic)
            partition, offset = message.partition() or 0, message.offset() or 0
            if message.error() is not None or offset >= left.get(partition, 0):
                left.pop(partition, None)
                continue
            yield of_message(group, message)
            if offset + 1 == left[partition]:
                del left[partition]

    def topic_id(self, group: str) -> str:
        """The id that a group's dead-letter topic has now; empty when there is none.

        Raises:
            TopicError: the cluster does not answer.
        """
        topic = f"{group}.{DLQ}"
        found = offsets.describe(admin.client(self._settings), self._names, [topic])
        return found[topic].id if topic in found else ""

    def spans(self, group: str, partitions: Iterable[int]) -> dict[int, tuple[int, int]]:
        """Where partitions of a group's dead letters begin and end now.

        Raises:
            TopicError: the broker does not answer.
        """
        topic, found = self._names.topic(f"{group}.{DLQ}"), {}
        for number in partitions:
            try:
                found[number] = self._consumer.get_watermark_offsets(TopicPartition(topic, number), admin.TIMEOUT)
            except KafkaException as error:
                raise TopicError(f"{topic}/{number}: {admin.error_of(error).str()}") from error
        return found

    def fetch(self, group: str, places: Iterable[tuple[int, int]]) -> dict[tuple[int, int], DeadLetter]:
        """The dead letters at places (partition and offset); those that the log does not have any more are left out.

        A pointer is replaced by the record that it stands for, while the source has it.

        Raises:
            TopicError: as `read`.
        """
        wanted: dict[int, deque[int]] = {}
        for partition, offset in sorted(places):
            wanted.setdefault(partition, deque()).append(offset)
        topic = self._assign(group, {partition: offsets[0] for partition, offsets in wanted.items()})
        found: dict[tuple[int, int], DeadLetter] = {}
        while wanted:
            message = self._poll(topic)
            partition, offset = message.partition() or 0, message.offset() or 0
            if message.error() is not None:
                wanted.pop(partition, None)
            elif (offsets := wanted.get(partition)) is not None:
                while offsets and offsets[0] < offset:
                    offsets.popleft()
                if offsets and offsets[0] == offset:
                    offsets.popleft()
                    found[partition, offset] = self._whole(of_message(group, message))
                if not offsets:  # what was fetched beyond it would come next
                    del wanted[partition]
                    self._consumer.incremental_unassign([TopicPartition(topic, partition)])
                elif offsets[0] - offset > _SKIP:
                    self._consumer.seek(TopicPartition(topic, partition, offsets[0]))
        return found

    def _whole(self, letter: DeadLetter) -> DeadLetter:
        if letter.pointer is None:
            return letter
        try:
            record = pointers.resolve(self._settings, letter.pointer, letter.hop.origin)
        except PointerLost:
            return letter
        return replace(letter, key=record.key, value=record.value, headers=record.headers, pointer=None)

    def _assign(self, group: str, starts: Mapping[int, int]) -> str:
        topic = self._names.topic(f"{group}.{DLQ}")
        self._consumer.assign([TopicPartition(topic, partition, offset) for partition, offset in starts.items()])
        return topic

    def _poll(self, topic: str) -> Message:
        """The next record, or the end of a partition."""
        deadline = SYSTEM.monotonic() + STALL_SECONDS
        while SYSTEM.monotonic() < deadline:
            message = self._consumer.poll(_POLL_SECONDS)
            if message is None:
                continue
            error = message.error()
            if error is None or error.code() == KafkaError._PARTITION_EOF:
                return message
            if not error.retriable():
                raise TopicError(f"{topic}/{message.partition()}: {error.str()}")
        raise TopicError(f"{topic}: the broker sent nothing for {STALL_SECONDS:.0f} s")


def read(settings: Settings, group: str) -> Iterator[DeadLetter]:
    """All dead letters of a group that are retained, partition by partition, from oldest to newest.

    Args:
        settings: names the cluster.
        group: the group's name.

    Raises:
        TopicError: the group has no dead-letter topic, or the broker does not answer.
    """
    numbers = partitions(settings, group)
    with LetterReader(settings) as reader:
        yield from reader.read(group, reader.spans(group, numbers))


def partitions(settings: Settings, group: str) -> list[int]:
    """The partitions of a group's dead-letter topic.

    Raises:
        TopicError: it has none, or the broker does not answer.
    """
    topic = Names(settings.kafka.namespace).topic(f"{group}.{DLQ}")
    found = admin.metadata(admin.client(settings), settings, topic).topics[topic]
    if found.error is not None:
        raise TopicError(
            f"there is no group {group}: it has no topic {topic} ({found.error.str()}); "
            "`offsetzero dlq groups` shows the groups that have dead letters"
        )
    return sorted(found.partitions)


def groups(settings: Settings) -> list[str]:
    """The groups of our namespace that have a dead-letter topic, by name.

    Raises:
        TopicError: the broker does not answer.
    """
    names = Names(settings.kafka.namespace)
    found = admin.metadata(admin.client(settings), settings).topics
    ours = (names.strip(topic) for topic in found)
    suffix = f".{DLQ}"
    return sorted(name.removesuffix(suffix) for name in ours if name is not None and name.endswith(suffix))
