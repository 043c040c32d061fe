"""The contract on logs that speak Kafka's protocol: a real cluster, and librdkafka's mock broker."""

import threading
from collections.abc import Callable, Collection, Mapping, Sequence
from contextlib import suppress
from typing import Any, TypeVar

from confluent_kafka import Consumer, IsolationLevel, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, OffsetSpec
from contract.harness import DEAD, GROUP, REDRIVE, RETRY, SOURCE, Headers, Stored
from kafka.conftest import RunningGroup

from offsetzero.client_log import LOGGER
from offsetzero.consumers.control.channel import Channel
from offsetzero.consumers.group import ConsumerGroup
from offsetzero.consumers.reading.facts import FactsReader
from offsetzero.consumers.reading.positions import Facts
from offsetzero.consumers.resources import Resources
from offsetzero.consumers.watching.ownership import Shares
from offsetzero.errors import TopicError
from offsetzero.producers.delivery import Delivery
from offsetzero.producers.log import LogProducer
from offsetzero.schemas.control import GroupReplayAnswered
from offsetzero.schemas.event import Event
from offsetzero.settings import Settings
from offsetzero.store.database import Pool
from offsetzero.store.starts import Place
from offsetzero.topics import catalogue, cluster, offsets
from offsetzero.topics.names import Names
from support import wait_until

T = TypeVar("T")
PUT_OUT_MS = 3_000
"""Milliseconds without a poll after which a client leaves its group."""


class RealGate:
    """An event."""

    def __init__(self) -> None:
        self._event = threading.Event()

    def wait(self) -> None:
        assert self._event.wait(60)

    def open(self) -> None:
        self._event.set()


class HeldConsumer(Consumer):
    """The client, whose polling thread a test can hold up; it notes when something was taken away."""

    free: threading.Event
    told: set[str]

    def poll(self, timeout: float = -1) -> Any:
        self.free.wait()
        return super().poll(timeout)

    def subscribe(self, topics: list[str], *, on_revoke: Any, on_lost: Any, **callbacks: Any) -> None:
        def noting(callback: Any) -> Any:
            def call(consumer: Consumer, partitions: list[TopicPartition]) -> None:
                self.told.add("begun")
                callback(consumer, partitions)
                self.told.add("served")

            return call

        super().subscribe(topics, on_revoke=noting(on_revoke), on_lost=noting(on_lost), **callbacks)


class RefusingProducer(LogProducer):
    """The producer; a test can have its appends go where nobody takes them."""

    refuses: Callable[[], bool]

    def produce(self, topic: str, **record: Any) -> Delivery:
        return super().produce(topic, **{**record, "partition": 9_999} if self.refuses() else record)


class RealMember(RunningGroup):
    """A member in a thread of this process."""

    def __init__(self, group: ConsumerGroup, settings: Settings, resources: "ClientResources") -> None:
        self.free = resources.free
        self.told = resources.told
        super().__init__(group, settings, resources)

    def has_to_give_up(self) -> bool:
        return "begun" in self.told

    def has_lost(self) -> bool:
        return "served" in self.told  # a revocation for a classic client that left by itself


class ClientResources(Resources):
    """Of one member.

    Args:
        settings: of the member.
        log: whose member it is.
    """

    def __init__(self, settings: Settings, log: "ClientLog") -> None:
        super().__init__(settings)
        self.free = threading.Event()
        self.free.set()
        self.told: set[str] = set()
        self._log = log

    def consumer(self, config: Mapping[str, Any]) -> Consumer:
        made = HeldConsumer({**config}, logger=LOGGER)
        made.free, made.told = self.free, self.told
        return made

    def producer(self, **options: Any) -> LogProducer:
        made = RefusingProducer(self._settings, **options)
        made.refuses = lambda: self._log.refuses
        return made


class ClientLog:
    """A real cluster.

    Args:
        settings: name it; a namespace and a protocol of the test's own.
    """

    has_markers = True
    takes_last_commits = True

    def __init__(self, settings: Settings) -> None:
        self.refuses = False
        self.settings = settings
        self._names = Names(settings.kafka.namespace)
        self._plain = {"bootstrap.servers": settings.kafka.bootstrap_servers, "log_level": 0}
        self._producer = Producer({**self._plain, "linger.ms": 0})
        self._admin = AdminClient(self._plain)
        self._members: list[RealMember] = []
        self.partitions = self.make_topics()

    def make_topics(self) -> int:
        """Make the source; how many partitions it has."""
        source = next(topic for topic in catalogue.TOPICS if topic.name == SOURCE)
        cluster.ensure(self.settings, [source.resolved(self.settings)])
        return cluster.partition_count(self.settings, [SOURCE])

    def resources(self) -> ClientResources:
        """Those of a new member."""
        return ClientResources(self.settings, self)

    def close(self) -> None:
        """End the members that are left."""
        for member in self._members:
            member.free.set()
            member.runtime.stop()
        for member in self._members:
            with suppress(BaseException):
                member.stop()

    # --- as `Log` has it

    def play(self, script: Callable[[], None]) -> None:
        script()

    def until(self, condition: Callable[[], T], what: str) -> T:
        return wait_until(condition, what=what, interval=0.02)

    def gate(self) -> RealGate:
        return RealGate()

    def join(self, group: ConsumerGroup) -> RealMember:
        member = RealMember(group, self.settings, self.resources())
        self._members.append(member)
        return member

    def lose(self, member: RealMember) -> None:
        member.free.clear()
        threading.Timer(2 * PUT_OUT_MS / 1000, member.free.set).start()

    def append(self, partition: int, key: str, value: bytes | None, headers: Headers) -> int:
        return self._append(self._producer, partition, key, value, headers)

    def append_in_transaction(self, partition: int, key: str, value: bytes, headers: Headers, *, commit: bool) -> None:
        producer = Producer({**self._plain, "transactional.id": f"{self.settings.kafka.namespace}contract"})
        producer.init_transactions(10)
        producer.begin_transaction()
        self._append(producer, partition, key, value, headers)
        (producer.commit_transaction if commit else producer.abort_transaction)(10)

    def commit(self, partition: int, offset: int) -> None:
        client = Consumer({**self._plain, "group.id": self._names.group(GROUP), "enable.auto.commit": False})
        client.commit(offsets=[TopicPartition(self._names.topic(SOURCE), partition, offset)], asynchronous=False)
        client.close()

    def committed(self, partition: int, topic: str = SOURCE) -> int | None:
        return self.offsets([(topic, partition)])[topic, partition]

    def behind(self) -> list[str]:
        places = [(topic, number) for topic in (SOURCE, RETRY, REDRIVE) for number in range(self.partitions)]
        committed, ends = self.offsets(places), self.ends(places, OffsetSpec.latest())
        return [f"{one}: {committed[one]} of {ends[one]}" for one in places if committed[one] != ends[one]]

    def read(self, topic: str) -> list[Stored]:
        places = [(topic, number) for number in range(self.partitions)]
        ends = self.ends(places, OffsetSpec.latest())
        client = Consumer({**self._plain, "group.id": "none", "enable.auto.commit": False})
        name = self._names.topic(topic)
        client.assign([TopicPartition(name, number, 0) for (_, number), end in ends.items() if end])
        found: list[Stored] = []
        while len(found) < sum(ends.values()):
            message = client.poll(10)
            assert message is not None, f"{topic} has fewer records than offsets"
            assert message.error() is None, message.error()
            headers = dict(message.headers() or [])
            found.append(Stored(message.partition(), message.offset(), message.key(), message.value(), headers))
        client.close()
        return found

    # --- for several partitions at once

    def offsets(self, places: Sequence[Place]) -> dict[Place, int | None]:
        """Committed ones."""

        def found() -> list[dict[Place, offsets.Committed]]:
            try:
                return [offsets.committed(self.settings, GROUP, places)]
            except TopicError:  # the coordinator of a cluster's first group has yet to be made
                return []

        known = wait_until(found, what="committed offsets")[0]
        return {place: known[place].offset if place in known else None for place in places}

    def ends(self, places: Sequence[Place], spec: OffsetSpec) -> dict[Place, int]:
        """Of a partition each."""
        asked = {TopicPartition(self._names.topic(topic), number): spec for topic, number in places}
        answers = self._admin.list_offsets(asked, isolation_level=IsolationLevel.READ_COMMITTED)
        return {
            (self._names.strip(one.topic) or one.topic, one.partition): future.result(10).offset
            for one, future in answers.items()
        }

    def _append(self, producer: Producer, partition: int, key: str, value: bytes | None, headers: Headers) -> int:
        placed: list[int] = []
        producer.produce(
            self._names.topic(SOURCE),
            value,
            key,
            partition,
            headers=headers,
            on_delivery=lambda error, message: placed.append(message.offset() if error is None else -1),
        )
        assert producer.flush(10) == 0
        return placed[0]


class MockLog(ClientLog):
    """librdkafka's mock broker, in this process: groups of both protocols, and no JVM.

    It answers no question about ids of topics or members of groups, makes topics of four partitions when they are
    asked for, writes no markers for transactions, and while a group of the older protocol rebalances it refuses the
    commits that Kafka takes.
    """

    has_markers = False

    def __init__(self, settings: Settings) -> None:
        self._broker = Producer(
            {"bootstrap.servers": "mock:1", "test.mock.num.brokers": 1, "allow.auto.create.topics": True}
        )
        found = next(iter(self._broker.list_topics(timeout=10).brokers.values()))
        kafka = settings.kafka.model_copy(update={"bootstrap_servers": f"{found.host}:{found.port}"})
        self.takes_last_commits = kafka.group_protocol != "classic"
        super().__init__(settings.model_copy(update={"kafka": kafka}))

    def make_topics(self) -> int:
        for topic in (SOURCE, RETRY, REDRIVE, DEAD):
            made = self._broker.list_topics(self._names.topic(topic), timeout=10)
        return len(made.topics[self._names.topic(DEAD)].partitions)

    def resources(self) -> ClientResources:
        return MockResources(self.settings, self)


class MockResources(ClientResources):
    """What the mock broker does not know is told here."""

    def topics(self, group: str, sources: Sequence[str], tiers: Sequence[str]) -> dict[str, str]:
        return {name: f"id-of-{name}" for name in (SOURCE, RETRY, REDRIVE)}

    def facts(
        self,
        group: str,
        topics: Sequence[str],
        latest: Sequence[str],
        connections: Pool | None,
        *,
        hold: bool = False,
        projection: bool = False,
    ) -> FactsReader:
        return MockFacts(self._log)

    def channel(self, group: str, producer: LogProducer) -> Channel:
        return Silence()

    def shares(self, group: str, topics: Collection[str], member_id: str) -> Shares | None:
        return Shares(frozenset(), 0, speaks=False)


class Silence:
    """As `ControlTopic`, of which nothing comes: the broker says nothing about the ends of logs."""

    def news(self) -> list[Event]:
        return []

    def answer(self, answer: GroupReplayAnswered) -> None:
        """Nobody has asked."""

    def close(self) -> None:
        """Nothing is open."""


class MockFacts:
    """As `ClusterFacts`, of topics that stay the same."""

    def __init__(self, log: ClientLog) -> None:
        self._log = log

    def read(self, places: Sequence[Place]) -> Mapping[Place, Facts]:
        low = self._log.ends(places, OffsetSpec.earliest())
        high = self._log.ends(places, OffsetSpec.latest())
        committed = self._log.offsets(places)
        return {one: Facts(f"id-of-{one[0]}", low[one], high[one], committed[one]) for one in places}

    def topic_ids(self) -> Mapping[str, str]:
        return {name: f"id-of-{name}" for name in (SOURCE, RETRY, REDRIVE)}

    def confirm(self, places: Sequence[Place]) -> None:
        """Nothing to do without a database."""

    def enter(self, places: Sequence[Place]) -> str:
        """Nobody to tell without a database."""
        return ""
