"""Stands in for the client's Consumer and records what is asked of it: the polling thread's rules without a broker."""

from collections import deque
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from confluent_kafka import KafkaError, KafkaException, TopicPartition

from offsetzero.consumers.reading.positions import Facts
from offsetzero.errors import PublishError
from offsetzero.schemas.control import GroupReplayAnswered
from offsetzero.schemas.event import Event
from offsetzero.store.positions import Position


class FakeMessage:
    """What the client hands out."""

    def __init__(
        self,
        topic: str,
        partition: int,
        offset: int,
        *,
        key: bytes | None = b"k",
        headers: list[tuple[str, bytes]] | None = None,
        timestamp_ms: int = 0,
        error: KafkaError | None = None,
    ) -> None:
        self._topic, self._partition, self._offset = topic, partition, offset
        self._key, self._headers, self._timestamp, self._error = key, headers or [], timestamp_ms, error

    def topic(self) -> str:
        return self._topic

    def partition(self) -> int:
        return self._partition

    def offset(self) -> int:
        return self._offset

    def key(self) -> bytes | None:
        return self._key

    def value(self) -> bytes:
        return b"v"

    def headers(self) -> list[tuple[str, bytes]]:
        return self._headers

    def timestamp(self) -> tuple[int, int]:
        return 1, self._timestamp

    def error(self) -> KafkaError | None:
        return self._error


class FakeConsumer:
    """Delivers what a test put into `messages`, except from paused partitions."""

    def __init__(self, config: dict[str, Any], **_options: Any) -> None:
        self.on_commit: Callable[..., None] = config["on_commit"]
        self.config = config
        self.messages: deque[FakeMessage] = deque()
        self.paused: set[tuple[str, int]] = set()
        self.committed: dict[tuple[str, int], int] = {}
        self.metadata: dict[tuple[str, int], str] = {}
        self.commit_error: KafkaError | None = None
        self.polls = 0
        self.assigned: set[tuple[str, int]] = set()
        self.sought: dict[tuple[str, int], int] = {}
        self.closed = False
        self.silent = False  # no answer to a commit comes
        self._answers: list[list[TopicPartition]] = []

    def subscribe(self, topics: list[str], **callbacks: Callable[..., None]) -> None:
        self.topics = topics
        self.callbacks = callbacks

    def poll(self, _timeout: float) -> FakeMessage | None:
        self.polls += 1
        if not self.silent:
            for partitions in self._answers:
                self.on_commit(self.commit_error, partitions)
            self._answers.clear()
        return self._next()

    def consume(self, count: int, _timeout: float) -> list[FakeMessage]:
        found = []
        while len(found) < count and (message := self._next()) is not None:
            found.append(message)
        return found

    def _next(self) -> FakeMessage | None:
        for message in self.messages:
            if (message.topic(), message.partition()) not in self.paused:
                self.messages.remove(message)
                return message
        return None

    def assign(self, partitions: list[TopicPartition]) -> None:
        self.assigned = {(one.topic, one.partition) for one in partitions}

    def incremental_assign(self, partitions: list[TopicPartition]) -> None:
        self.assigned |= {(one.topic, one.partition) for one in partitions}

    def seek(self, place: TopicPartition) -> None:
        if (place.topic, place.partition) not in self.assigned:
            raise KafkaException(KafkaError(KafkaError._STATE))
        self.sought[place.topic, place.partition] = place.offset

    def pause(self, partitions: list[TopicPartition]) -> None:
        self.paused |= {(one.topic, one.partition) for one in partitions}

    def resume(self, partitions: list[TopicPartition]) -> None:
        self.paused -= {(one.topic, one.partition) for one in partitions}

    def commit(self, *, offsets: list[TopicPartition], asynchronous: bool) -> list[TopicPartition] | None:
        if self.commit_error is None:
            self.committed |= {(one.topic, one.partition): one.offset for one in offsets}
            self.metadata |= {(one.topic, one.partition): one.metadata for one in offsets}
        if asynchronous:
            self._answers.append(offsets)
            return None
        return offsets

    def get_watermark_offsets(self, _place: TopicPartition, *, cached: bool) -> tuple[int, int]:
        return -1001, -1001

    def consumer_group_metadata(self) -> str:
        return "member"

    def memberid(self) -> str:
        return "member"

    def close(self) -> None:
        self.closed = True


class FakeChannel:
    """Hands out what a test has put into `coming`, and remembers the answers."""

    def __init__(self) -> None:
        self.coming: list[Event] = []
        self.answers: list[GroupReplayAnswered] = []

    def news(self) -> list[Event]:
        found, self.coming = self.coming, []
        return found

    def answer(self, answer: GroupReplayAnswered) -> None:
        self.answers.append(answer)

    def close(self) -> None: ...


class FakeFacts:
    """Answers what a test put into it; counts how often it was asked."""

    def __init__(self, topic_ids: Mapping[str, str]) -> None:
        self.ids = dict(topic_ids)
        self.facts: dict[tuple[str, int], Facts] = {}
        self.away: Exception | None = None
        self.confirmed: list[tuple[str, int]] = []
        self.entered: list[tuple[str, int]] = []
        self.reads = 0
        self.kept: list[dict[tuple[str, int], Position]] = []

    def read(self, places: Sequence[tuple[str, int]]) -> dict[tuple[str, int], Facts]:
        self.reads += 1
        self._answer()
        return {place: self.facts.get(place) or self._usual(place[0]) for place in places}

    def _usual(self, topic: str) -> Facts:
        """A source has something to read, and nothing waits in a retry topic."""
        return Facts(self.ids.get(topic), high=0 if ".retry-" in topic else 1_000)

    def topic_ids(self) -> dict[str, str]:
        self._answer()
        return dict(self.ids)

    def confirm(self, places: Sequence[tuple[str, int]]) -> None:
        self._answer()
        self.confirmed += places

    def enter(self, places: Sequence[tuple[str, int]]) -> str:
        self._answer()
        self.entered += places
        return "stay"

    def keep(self, positions: Mapping[tuple[str, int], Position]) -> None:
        self._answer()
        self.kept.append(dict(positions))

    put = keep

    def _answer(self) -> None:
        if self.away is not None:
            raise self.away


class FakeDelivery:
    """Answered when a test says so."""

    def __init__(self) -> None:
        self.answer: PublishError | bool | None = None

    def done(self) -> bool:
        return self.answer is not None

    def result(self, timeout: float | None = None) -> None:
        if isinstance(self.answer, PublishError):
            raise self.answer


class FakeProducer:
    """Remembers what was appended: arguments and delivery of each record."""

    def __init__(self) -> None:
        self.appended: list[tuple[dict[str, Any], FakeDelivery]] = []

    def produce(self, topic: str, **record: Any) -> FakeDelivery:
        self.appended.append(({"topic": topic, **record}, FakeDelivery()))
        return self.appended[-1][1]


class NoThread:
    """In place of a thread: a test does its work itself."""

    def __init__(self, *_given: object) -> None: ...

    def start(self) -> None: ...

    def join(self, timeout: float | None = None) -> None: ...
