"""Stands for `offsetzero.producers.log.LogProducer`: appends to the log; answers may be late, or never come."""

from collections.abc import Callable
from typing import Any

from confluent_kafka import KafkaError

from offsetzero.errors import PublishError
from offsetzero.producers.delivery import RecordMetadata
from simulation.baton import Process, Task
from simulation.faults import Answer
from simulation.log import Headers
from simulation.world import World

PATIENCE = 1.5  # seconds until an append without an answer has failed


class SimDelivery:
    """As `offsetzero.producers.delivery.Delivery`."""

    def __init__(self, world: World, topic: str) -> None:
        self._world = world
        self._topic = topic
        self._metadata: RecordMetadata | None = None
        self._given_up = False
        self._waiting: list[Task] = []
        self._callbacks: list[Callable[[SimDelivery], object]] = []

    def done(self) -> bool:
        return self._metadata is not None or self._given_up

    def result(self, timeout: float | None = None) -> RecordMetadata:
        baton = self._world.baton
        if not self.done():
            self._waiting.append(baton.current)
            baton.block(timeout)
        if self._given_up:
            name = KafkaError(KafkaError._MSG_TIMED_OUT).name()
            raise PublishError(f"{self._topic}: no answer", code=name, retriable=True)
        if self._metadata is None:
            raise TimeoutError(self._topic)
        return self._metadata

    def add_done_callback(self, callback: Callable[["SimDelivery"], object]) -> None:
        if self.done():
            callback(self)
        else:
            self._callbacks.append(callback)

    def settle(self, metadata: RecordMetadata | None) -> None:
        """The broker has acknowledged the record, or (None) the client has given it up."""
        if self.done():
            return
        self._metadata = metadata
        self._given_up = metadata is None
        for task in self._waiting:
            self._world.baton.wake(task)
        for callback in self._callbacks:
            callback(self)


class SimProducer:
    """One process's producer."""

    fatal: str | None = None

    def __init__(self, world: World, process: Process) -> None:
        self._world = world
        self._baton = world.baton
        self._process = process
        self._open: list[SimDelivery] = []

    def produce(
        self,
        topic: str,
        *,
        key: bytes | None,
        value: bytes | None,
        headers: Headers,
        partition: int,
        timestamp_ms: int,
    ) -> SimDelivery:
        world, baton = self._world, self._baton
        baton.check(baton.current)
        delivery = SimDelivery(world, topic)
        self._open.append(delivery)
        place, plain = (topic, partition), None if value is None else bytes(value)
        event_id = world.laws.appends(self._process, place, headers)
        baton.say(f"appends {event_id} to {topic}/{partition}")
        answer = world.faults.answer("append")

        def land() -> None:
            record = world.log.append(place, key, plain, headers, timestamp_ms)
            world.laws.landed(record)
            baton.say(f"{record} has landed")
            if answer is Answer.OK:
                found = RecordMetadata(topic, partition, record.offset, timestamp_ms)
                baton.after(baton.hop(), lambda: self._settle(delivery, found))

        if answer is not Answer.LOST:
            # What is unclear may land after the client has given it up.
            baton.after(baton.hop() if answer is Answer.OK else baton.dice.random() * 2 * PATIENCE, land)
        if answer is not Answer.OK:
            baton.after(PATIENCE * baton.dice.random(), lambda: self._settle(delivery, None))
        return delivery

    def purge(self) -> None:
        """Give up what has no answer; it may land all the same."""
        for delivery in list(self._open):
            self._settle(delivery, None)

    def flush(self, timeout: float) -> int:
        deadline = self._baton.now + timeout
        while self._open and self._baton.now < deadline:
            self._baton.pause(0.05)
        return len(self._open)

    def close(self, timeout: float = 30.0, **_: Any) -> int:
        left = self.flush(timeout)
        self.purge()
        return left

    def __enter__(self) -> "SimProducer":
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _settle(self, delivery: SimDelivery, metadata: RecordMetadata | None) -> None:
        if delivery in self._open:
            self._open.remove(delivery)
            self._baton.say(f"append to {delivery._topic} {'acknowledged' if metadata else 'given up'}")
            delivery.settle(metadata)
