"""A PollLoop on a fake client and fake facts, driven by a test: no broker, no thread, no waiting."""

import threading
from collections.abc import Callable

from confluent_kafka import TopicPartition
from unit.consumers.fake_client import FakeChannel, FakeConsumer, FakeFacts, FakeMessage, FakeProducer, NoThread
from unit.consumers.taking import take

from offsetzero.consumers.reading.commits import Commits
from offsetzero.consumers.reading.opening import Opening
from offsetzero.consumers.reading.poll import PollLoop
from offsetzero.consumers.record import Record
from offsetzero.consumers.working.appends import Refusals
from offsetzero.consumers.working.dispatch import Dispatcher
from offsetzero.consumers.working.lanes import KeyLanes
from offsetzero.consumers.working.parking import Parking
from offsetzero.settings import GroupSettings
from offsetzero.topics.names import Names
from support import ManualClock


class WorkingClock(ManualClock):
    """Whoever waits lets the opening thread's work be done, and waits no more."""

    work: Callable[[], None]

    def wait(self, condition: threading.Condition, until: Callable[[], object], seconds: float | None = None) -> bool:
        self.work()
        return bool(until())


class Loop:
    """With partitions 0 and 1 of `documents` and `audit.retry-1m` assigned, unless a test assigns itself."""

    def __init__(
        self,
        *,
        protocol: str = "consumer",
        assign: bool = True,
        commits: type[Commits] | None = None,
        lanes: KeyLanes | None = None,
        **limits: int,
    ) -> None:
        self.clock = WorkingClock()
        self.dispatcher = Dispatcher(self.clock, lanes)
        self.facts = FakeFacts({"documents": "id-1", "audit.retry-1m": "id-2"})
        self.opening = Opening(self.facts, "audit", self.clock, NoThread)
        self.clock.work = self.opening.work
        self.producer = FakeProducer()
        self.channel = FakeChannel()
        self.lost = 0
        self.made: list[FakeConsumer] = []

        def make(config: dict[str, object]) -> FakeConsumer:
            self.made.append(FakeConsumer(config))
            return self.made[-1]

        self.loop = PollLoop(
            {"group.protocol": protocol},
            {"documents": "id-1"},
            {"audit.retry-1m": "id-2"},
            "audit",
            Names("t."),
            self.dispatcher,
            GroupSettings(**limits),
            self.clock,
            self.on_lost,
            make,  # type: ignore[arg-type]
            self.opening,
            Parking(
                "audit",
                "audit.retry-1m",
                self.producer,  # type: ignore[arg-type]
                Names("t."),
                self.clock,
                Refusals("audit", self.clock),
            ),
            self.channel,
            commits("audit", Names("t."), self.clock) if commits is not None else None,  # type: ignore[call-arg]
        )
        self.loop.subscribe()
        self.places = [TopicPartition(f"t.{name}", n) for name in ("documents", "audit.retry-1m") for n in (0, 1)]
        if assign:
            self.assign(self.places)
            self.turn()

    @property
    def client(self) -> FakeConsumer:
        return self.made[-1]

    def assign(self, places: list[TopicPartition]) -> None:
        self.client.callbacks["on_assign"](self.client, places)

    def revoke(self, places: list[TopicPartition]) -> None:
        self.client.callbacks["on_revoke"](self.client, places)

    def lose(self, places: list[TopicPartition]) -> None:
        self.client.callbacks["on_lost"](self.client, places)

    def on_lost(self) -> None:
        self.lost += 1

    def deliver(self, offset: int, partition: int = 0, topic: str = "documents", **given: object) -> None:
        message = FakeMessage(f"t.{topic}", partition, offset, key=str(offset).encode(), **given)  # type: ignore[arg-type]
        self.client.messages.append(message)

    def turn(self, seconds: float = 0.0) -> None:
        """A round, the answer to what it has asked, and a round that makes use of it."""
        self.clock.advance(seconds)
        self.loop.turn()
        for _ in range(3):
            self.opening.work()
        self.loop.turn()

    def committed(self, topic: str = "documents", partition: int = 0) -> int | None:
        return self.client.committed.get((f"t.{topic}", partition))

    def take(self) -> Record:
        record = take(self.dispatcher)
        assert record is not None
        return record
