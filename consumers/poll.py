"""The polling thread: fetches, serves rebalances, commits. Nothing that handlers do may stop it (design section 6)."""

import contextlib
from collections.abc import Callable, Iterable, Mapping
from typing import Any

from confluent_kafka import Consumer, KafkaError, KafkaException, Message, TopicPartition

from offsetzero import logs, metrics
from offsetzero.clock import Clock
from offsetzero.consumers.dispatch import Dispatcher
from offsetzero.consumers.record import OwnedPartition, PauseReason, Record
from offsetzero.errors import GroupStopped
from offsetzero.retry import headers as retry_headers
from offsetzero.settings import GroupSettings
from offsetzero.topics.names import Names

BATCH = 500
IDLE_SECONDS = 0.05
COMMIT_SECONDS = 1.0
FULL_SECONDS = 1.0  # without room for so long, partitions are paused: not polling would look like a dead member
REVOKE_SECONDS = 5.0
MAX_WAITING = 100_000  # records of retry topics kept in memory until they are due

log = logs.get(__name__)


def due_ms(headers: Iterable[tuple[str, bytes | None]]) -> int:
    """The header `oz_due` (wall time, milliseconds); 0 when it is not there or cannot be read."""
    for name, value in headers:
        if name == "oz_due" and value is not None:
            try:
                return int(value)
            except ValueError:
                return 0
    return 0


class PollLoop:
    """Owns the Kafka consumer of one group member; every method is called by one thread.

    Args:
        config: librdkafka properties.
        sources: source topics as the catalogue names them, with their topic ids.
        retries: the group's retry topics, likewise.
        group: the group's name, for metrics.
        names: topic names on the cluster.
        dispatcher: gets the records.
        limits: how much may be in flight.
        clock: due times and intervals.
        make_consumer: for tests that run on another kind of log.
    """

    def __init__(
        self,
        config: Mapping[str, Any],
        sources: Mapping[str, str],
        retries: Mapping[str, str],
        group: str,
        names: Names,
        dispatcher: Dispatcher,
        limits: GroupSettings,
        clock: Clock,
        make_consumer: Callable[[dict[str, Any]], Consumer] = Consumer,
    ) -> None:
        self._topics = {**sources, **retries}
        self._retries = frozenset(retries)
        self._group = group
        self._names = names
        self._dispatcher = dispatcher
        self._limits = limits
        self._clock = clock
        self._owned: dict[tuple[str, int], OwnedPartition] = {}
        self._full_since: float | None = None
        self._next_commit = 0.0
        self._consumer = make_consumer({**config, "on_commit": self._on_commit})

    def subscribe(self) -> None:
        """Join the group."""
        self._consumer.subscribe(
            [self._names.topic(name) for name in self._topics],
            on_assign=self._on_assign,
            on_revoke=self._on_revoke,
            on_lost=self._on_lost,
        )

    def turn(self) -> None:
        """One round: due records, back-pressure, fetch, commit. Blocks for about 50 ms when nothing happens.

        Raises:
            GroupStopped: the client reports an error that it cannot recover from.
        """
        due = self._dispatcher.tick()
        room = self._dispatcher.wait_for_room(
            self._limits.max_in_flight, self._limits.max_in_flight_bytes, IDLE_SECONDS
        )
        if self._may_fetch(room):
            timeout = IDLE_SECONDS if due is None else min(IDLE_SECONDS, due)
            self._accept(self._fetch(max(1, min(BATCH, room)), timeout))
        now = self._clock.monotonic()
        if now >= self._next_commit:
            self._next_commit = now + COMMIT_SECONDS
            self._commit(list(self._owned.values()), asynchronous=True)
            self._measure()

    def drain(self, seconds: float) -> list[Record]:
        """Fetch nothing more and keep the membership until the running handlers have ended, `seconds` at most.

        Returns:
            The records that still run.
        """
        self._dispatcher.close()
        deadline = self._clock.monotonic() + seconds
        self._pause(self._owned.values(), PauseReason.BACK_PRESSURE)
        while left := self._dispatcher.wait_idle(IDLE_SECONDS):
            if self._clock.monotonic() > deadline:
                return left
            self._consumer.poll(0)  # paused: serves only heartbeats and callbacks
        return []

    def close(self) -> None:
        """Commit what is done and leave the group."""
        self._commit(list(self._owned.values()), asynchronous=False)
        self._consumer.close()

    def _fetch(self, count: int, timeout: float) -> list[Message]:
        # consume() waits for a full batch or the whole timeout: so one poll, then what is there already.
        first = self._consumer.poll(timeout)
        if first is None:
            return []
        return [first, *self._consumer.consume(count - 1, 0)] if count > 1 else [first]

    def _accept(self, messages: list[Message]) -> None:
        now: list[Record] = []
        for message in messages:
            error = message.error()
            topic = self._names.strip(message.topic() or "") or ""
            owned = self._owned.get((topic, message.partition() or 0))
            if error is not None:
                self._on_error(error, owned, message)
            elif owned is not None:
                record = self._record(owned, message)
                owned.deliver(record)
                if topic not in self._retries or (wait := self._wait(record)) <= 0:
                    now.append(record)
                else:
                    self._dispatcher.add_later(record, self._clock.monotonic() + wait)
        if now:
            self._dispatcher.add(now)

    @staticmethod
    def _record(owned: OwnedPartition, message: Message) -> Record:
        headers = retry_headers.of_message(message)
        _, timestamp_ms = message.timestamp()
        return Record(owned, message.offset() or 0, message.key(), message.value(), headers, timestamp_ms)

    def _wait(self, record: Record) -> float:
        """Seconds until a retry record is due; never more than was meant when it was appended (clock steps)."""
        due = due_ms(record.headers)
        return min(due - self._clock.now_ms(), due - record.timestamp_ms) / 1000

    def _on_error(self, error: KafkaError, owned: OwnedPartition | None, message: Message) -> None:
        if error.code() == KafkaError._PARTITION_EOF:
            if owned is not None:
                owned.reach(message.offset() or 0)
        elif error.fatal() or error.code() in (
            KafkaError.GROUP_AUTHORIZATION_FAILED,
            KafkaError.TOPIC_AUTHORIZATION_FAILED,
        ):
            raise GroupStopped(f"group {self._group}: {error.str()}")
        else:
            log.warning("consumer error", group=self._group, error=error.str(), code=error.name())

    # --- back-pressure: fetching less; pausing is the last resort, for the client throws its prefetch away then

    def _may_fetch(self, room: int) -> bool:
        self._bound_waiting()
        if room > 0:
            self._full_since = None
            if self._dispatcher.in_flight <= self._limits.max_in_flight // 2:
                self._resume(self._owned.values(), PauseReason.BACK_PRESSURE)
            return True
        now = self._clock.monotonic()
        if self._full_since is None:
            self._full_since = now
        if now - self._full_since < FULL_SECONDS:
            return False
        self._pause(self._owned.values(), PauseReason.BACK_PRESSURE)
        return True

    def _bound_waiting(self) -> None:
        waiting = self._dispatcher.waiting
        if waiting > MAX_WAITING:
            self._pause(self._retry_partitions(), PauseReason.WAITING)
        elif waiting <= MAX_WAITING // 2:
            self._resume(self._retry_partitions(), PauseReason.WAITING)

    def _retry_partitions(self) -> list[OwnedPartition]:
        return [owned for owned in self._owned.values() if owned.topic in self._retries]

    def _pause(self, partitions: Iterable[OwnedPartition], reason: PauseReason) -> None:
        for owned in partitions:
            if not owned.pauses:
                self._consumer.pause([self._place(owned)])
                metrics.PAUSES.labels(self._group).inc()
            owned.pauses.add(reason)

    def _resume(self, partitions: Iterable[OwnedPartition], reason: PauseReason) -> None:
        for owned in partitions:
            if reason in owned.pauses:
                owned.pauses.discard(reason)
                if not owned.pauses:
                    self._consumer.resume([self._place(owned)])

    # --- assignment: the lists are what is added or taken away, and may be empty

    def _on_assign(self, _consumer: Consumer, partitions: list[TopicPartition]) -> None:
        for place in partitions:
            topic = self._names.strip(place.topic) or place.topic
            self._owned[topic, place.partition] = OwnedPartition(topic, self._topics.get(topic, ""), place.partition)
        log.info("assigned", group=self._group, partitions=_shown(partitions))

    def _on_revoke(self, _consumer: Consumer, partitions: list[TopicPartition]) -> None:
        ending = self._forget(partitions)
        for owned in ending:
            owned.active = False  # nothing more is started
        still = self._dispatcher.wait_idle(REVOKE_SECONDS, ending)
        if still:
            log.warning("revoked while handlers run", group=self._group, records=[str(record) for record in still])
        self._commit(ending, asynchronous=False)
        for owned in ending:
            owned.revoke()
        self._dispatcher.purge()
        log.info("revoked", group=self._group, partitions=_shown(partitions))

    def _on_lost(self, _consumer: Consumer, partitions: list[TopicPartition]) -> None:
        for owned in self._forget(partitions):
            owned.revoke()  # another member owns it by now: nothing is committed
        self._dispatcher.purge()
        log.warning("lost", group=self._group, partitions=_shown(partitions))

    def _forget(self, partitions: list[TopicPartition]) -> list[OwnedPartition]:
        gone = []
        for place in partitions:
            topic = self._names.strip(place.topic) or place.topic
            if (owned := self._owned.pop((topic, place.partition), None)) is not None:
                gone.append(owned)
                _remove_lag(self._group, owned)
        return gone

    # --- commits

    def _commit(self, partitions: list[OwnedPartition], *, asynchronous: bool) -> None:
        offsets = []
        for owned in partitions:
            offset = owned.committable()
            if offset is not None and offset != owned.committed:
                owned.committed = offset
                offsets.append(TopicPartition(self._names.topic(owned.topic), owned.partition, offset))
        if not offsets:
            return
        try:
            if asynchronous:
                self._consumer.commit(offsets=offsets, asynchronous=True)
            else:
                self._on_commit(None, self._consumer.commit(offsets=offsets, asynchronous=False))
        except KafkaException as error:
            self._commit_failed(offsets, error.args[0])

    def _on_commit(self, error: KafkaError | None, partitions: list[TopicPartition]) -> None:
        failed = [place for place in partitions if error or place.error]
        self._commit_failed(failed, error or (failed[0].error if failed else None))

    def _commit_failed(self, partitions: list[TopicPartition], error: object) -> None:
        if not partitions:
            return
        for place in partitions:
            owned = self._owned.get((self._names.strip(place.topic) or "", place.partition))
            if owned is not None:
                owned.committed = None  # so that the next round tries again
        log.warning("commit failed", group=self._group, partitions=_shown(partitions), error=str(error))

    def _measure(self) -> None:
        metrics.IN_FLIGHT.labels(self._group).set(self._dispatcher.in_flight + self._dispatcher.waiting)
        for owned in self._owned.values():
            position = owned.committable()
            if position is None:
                continue
            _, high = self._consumer.get_watermark_offsets(self._place(owned), cached=True)
            if high >= 0:
                lag = max(0, high - position)
                metrics.LAG_RECORDS.labels(self._group, owned.topic, str(owned.partition)).set(lag)

    def _place(self, owned: OwnedPartition) -> TopicPartition:
        return TopicPartition(self._names.topic(owned.topic), owned.partition)


def _remove_lag(group: str, owned: OwnedPartition) -> None:
    with contextlib.suppress(KeyError):  # it was never measured
        metrics.LAG_RECORDS.remove(group, owned.topic, str(owned.partition))


def _shown(partitions: list[TopicPartition]) -> list[str]:
    return [f"{place.topic}/{place.partition}" for place in partitions]
