"""The polling thread: fetches, serves rebalances, commits. Nothing that handlers do may stop it (design section 6)."""

import contextlib
from collections.abc import Callable, Iterable, Mapping
from typing import Any

from confluent_kafka import Consumer, KafkaError, Message, TopicPartition

from offsetzero import logs, metrics
from offsetzero.clock import Clock
from offsetzero.consumers.commits import Commits
from offsetzero.consumers.dispatch import Dispatcher
from offsetzero.consumers.pressure import Pressure
from offsetzero.consumers.record import OwnedPartition, PauseReason, Record, spans
from offsetzero.errors import GroupStopped
from offsetzero.retry import headers as retry_headers
from offsetzero.settings import GroupSettings
from offsetzero.topics.names import Names

BATCH = 500
IDLE_SECONDS = 0.05
COMMIT_SECONDS = 1.0
REVOKE_SECONDS = 5.0
CLOSE_SECONDS = 5.0  # for the last commit's answer
_STOPS = frozenset({KafkaError.GROUP_AUTHORIZATION_FAILED, KafkaError.TOPIC_AUTHORIZATION_FAILED})

log = logs.get(__name__)


def due_ms(headers: Iterable[tuple[str, bytes | None]]) -> int:
    """The header `oz_due` (wall time, milliseconds); 0 when it is not there or cannot be read."""
    for name, value in headers:
        if name == "oz_due" and value is not None:
            return int(value) if value.isdigit() and len(value) <= 18 else 0
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
        lost: called when partitions are lost, to give up appends on behalf of them.
        make_consumer: makes the client.
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
        lost: Callable[[], None],
        make_consumer: Callable[[Mapping[str, Any]], Consumer],
    ) -> None:
        self._topics = {**sources, **retries}
        self._retries = frozenset(retries)
        self._group = group
        self._names = names
        self._dispatcher = dispatcher
        self._clock = clock
        self._lost = lost
        self._owned: dict[tuple[str, int], OwnedPartition] = {}
        self._next_commit = 0.0
        self._commits = Commits(group, clock)
        self._consumer = make_consumer({**config, "on_commit": self._commits.on_commit})
        self._pressure = Pressure(self._consumer, self._place, group, self._retries, dispatcher, limits, clock)

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
        if room := self._pressure.room(self._owned.values()):
            timeout = IDLE_SECONDS if due is None else min(IDLE_SECONDS, due)
            self._accept(self._fetch(min(BATCH, room), timeout))
        now = self._clock.monotonic()
        if now >= self._next_commit:
            self._next_commit = now + COMMIT_SECONDS
            self._commits.commit(self._consumer, self._places(self._owned.values()))
            self._measure()

    def drain(self, seconds: float) -> list[Record]:
        """Fetch nothing more and keep the membership until the running handlers have ended, `seconds` at most.

        Returns:
            The records that still run.
        """
        self._dispatcher.close()
        deadline = self._clock.monotonic() + seconds
        self._pressure.pause(self._owned.values(), PauseReason.BACK_PRESSURE)
        while left := self._dispatcher.wait_idle(IDLE_SECONDS):
            if self._clock.monotonic() > deadline:
                return left
            self._consumer.poll(0)  # paused: serves only heartbeats and callbacks
        return []

    def close(self) -> None:
        """Commit what is done and leave the group, within a bound also when the broker does not answer."""
        self._commits.commit(self._consumer, self._places(self._owned.values()))
        if not self._commits.settle(self._consumer, CLOSE_SECONDS):
            log.warning("last commit not answered: its records will be read again", group=self._group)
            for owned in self._owned.values():
                owned.committed = owned.committable()  # the revocation below shall not wait for it again
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
        meant = due - record.timestamp_ms
        if meant > retry_headers.MAX_WAIT_MS:
            return 0.0  # nobody appends such a copy: it is read at once, and turns out to be poison
        return min(due - self._clock.now_ms(), meant) / 1000

    def _on_error(self, error: KafkaError, owned: OwnedPartition | None, message: Message) -> None:
        if error.code() == KafkaError._PARTITION_EOF:
            if owned is not None:
                owned.reach(message.offset() or 0)
        elif error.fatal() or error.code() in _STOPS:
            raise GroupStopped(f"group {self._group}: {error.str()}")
        else:
            log.warning("consumer error", group=self._group, error=error.str(), code=error.name())

    # --- assignment: the lists are what is added or taken away, and may be empty

    def _on_assign(self, _consumer: Consumer, partitions: list[TopicPartition]) -> None:
        for place in partitions:
            topic = self._names.strip(place.topic) or place.topic
            self._owned[topic, place.partition] = OwnedPartition(topic, self._topics.get(topic, ""), place.partition)
        if partitions:
            # librdkafka keeps a partition's pause over a revocation; our reasons ended with it (quix-streams#1124).
            self._consumer.resume(partitions)
        log.info("assigned", group=self._group, partitions=spans(partitions))

    def _on_revoke(self, _consumer: Consumer, partitions: list[TopicPartition]) -> None:
        ending = self._forget(partitions)
        for owned in ending:
            owned.active = False  # nothing more is started
        still = self._dispatcher.wait_idle(REVOKE_SECONDS, ending)
        if still:
            log.warning("revoked while handlers run", group=self._group, records=[str(record) for record in still])
        self._commits.commit_now(self._consumer, self._places(ending))
        for owned in ending:
            owned.revoke()
        self._dispatcher.purge()
        log.info("revoked", group=self._group, partitions=spans(partitions))

    def _on_lost(self, _consumer: Consumer, partitions: list[TopicPartition]) -> None:
        for owned in self._forget(partitions):
            owned.revoke()  # another member owns it by now: nothing is committed, nothing more appended
        self._lost()
        self._dispatcher.purge()
        log.warning("lost", group=self._group, partitions=spans(partitions))

    def _forget(self, partitions: list[TopicPartition]) -> list[OwnedPartition]:
        gone = []
        for place in partitions:
            topic = self._names.strip(place.topic) or place.topic
            if (owned := self._owned.pop((topic, place.partition), None)) is not None:
                gone.append(owned)
                _remove_lag(self._group, owned)
        return gone

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

    def _places(self, partitions: Iterable[OwnedPartition]) -> list[tuple[TopicPartition, OwnedPartition]]:
        return [(self._place(owned), owned) for owned in partitions]


def _remove_lag(group: str, owned: OwnedPartition) -> None:
    with contextlib.suppress(KeyError):  # it was never measured
        metrics.LAG_RECORDS.remove(group, owned.topic, str(owned.partition))
