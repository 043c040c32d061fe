"""Stands for `offsetzero.producers.log.LogProducer`: appends to the log; answers may be late, or never come."""

import zlib
from collections.abc import Callable
from typing import Any

from confluent_kafka import KafkaError

from offsetzero.errors import PublishError
from offsetzero.producers.delivery import RecordMetadata
from simulation.baton import Process, Task
from simulation.clock import START_MS
from simulation.faults import Answer
from simulation.log import Headers, Stored
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
        self._lands = 0.0  # when the last record on its way is in the log

    def produce(
        self,
        topic: str,
        *,
        key: bytes | str | None,
        value: bytes | None,
        headers: Headers,
        partition: int | None = None,
        timestamp_ms: int | None = None,
    ) -> SimDelivery:
        world, baton = self._world, self._baton
        baton.check(baton.current)
        delivery = SimDelivery(world, topic)
        self._open.append(delivery)
        raw = key.encode() if isinstance(key, str) else key
        number = zlib.crc32(raw or b"") % world.log.partitions if partition is None else partition
        plain = None if value is None else bytes(value)
        record = Stored.of((topic, number), raw, plain, headers, timestamp_ms or START_MS)
        world.laws.appends(self._process, record)
        baton.say(f"appends {record.event_id} to {topic}/{number}")
        answer = world.faults.answer("append")
        put = self._put_into()

        def land() -> None:
            if not put(record):
                return
            baton.say(f"{record} has landed")
            if answer is Answer.OK:
                found = RecordMetadata(topic, number, record.offset, record.timestamp_ms)
                baton.after(baton.hop(), lambda: self._settle(delivery, found))

        if answer is not Answer.LOST:
            # What is unclear may land after the client has given it up; nothing lands before what was sent earlier.
            wait = baton.hop() if answer is Answer.OK else baton.dice.random() * 2 * PATIENCE
            self._lands = max(self._lands, baton.now + wait)
            baton.after(self._lands - baton.now, land)
        if answer is not Answer.OK:
            baton.after(PATIENCE * baton.dice.random(), lambda: self._settle(delivery, None))
        return delivery

    def _put_into(self) -> Callable[[Stored], bool]:
        """What appends a record to the log, and says whether it was taken."""

        def put(record: Stored) -> bool:
            self._world.log.append(record)
            self._world.laws.landed(record)
            return True

        return put

    def _given_up(self) -> None:
        """A record has no answer."""

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
            if metadata is None:
                self._given_up()
            delivery.settle(metadata)
