"""Appends to a group's own retry and dead-letter topics, and what the broker does not take of them."""

import threading
from dataclasses import dataclass

from confluent_kafka import KafkaError

from offsetzero import logs, metrics
from offsetzero.clock import Clock
from offsetzero.consumers.record import OwnedPartition, Record
from offsetzero.consumers.working.transaction import NotNow
from offsetzero.errors import PublishError
from offsetzero.producers.log import LogProducer
from offsetzero.schemas.cloudevents import Headers
from offsetzero.topics.names import Names

_SIZES = frozenset(
    str(KafkaError(code).name()) for code in (KafkaError.MSG_SIZE_TOO_LARGE, KafkaError.RECORD_LIST_TOO_LARGE)
)

TELL_SECONDS = 10.0  # without a transaction that gets through, while there is something to commit

log = logs.get(__name__)


@dataclass(frozen=True, slots=True)
class Append:
    """A record to be appended. `topic` is our name."""

    topic: str
    key: bytes | str | None
    value: bytes | None
    headers: Headers
    partition: int | None = None
    timestamp_ms: int | None = None

    @property
    def size(self) -> int:
        """About how many bytes it has."""
        return len(self.value or b"") + sum(len(value or b"") for _, value in self.headers)


class TooLarge(Exception):
    """The topic takes no record of that size."""


def is_too_large(error: PublishError) -> bool:
    """Whether a record was refused for its size."""
    return error.code in _SIZES


@dataclass(frozen=True, slots=True)
class Refusal:
    """An append that the broker does not take. `topic` may name several, of which one refuses; `since` is in monotonic
    seconds, of the first try."""

    topic: str
    since: float
    error: str


class Refusals:
    """The records whose appends the broker refuses now: their partitions rest. Any thread may call any method.

    Args:
        group: the group's name.
        clock: for how long.
    """

    def __init__(self, group: str, clock: Clock) -> None:
        self._group = group
        self._clock = clock
        self._lock = threading.Lock()
        self._refused: dict[Record, Refusal] = {}
        self._trying: dict[str, int] = {}
        self._held_up: Refusal | None = None

    def add(self, record: Record, topic: str, error: str) -> None:
        """The append of a record was refused."""
        with self._lock:
            known = self._refused.get(record)
            since = known.since if known is not None else self._clock.monotonic()
            self._refused[record] = Refusal(topic, since, error)
        self.count(topic)
        if known is None:  # once, for it is tried every second
            log.error("append refused", topic=topic, record=str(record), error=error)

    def count(self, topic: str) -> None:
        """An append was not taken."""
        metrics.APPENDS_FAILED.labels(self._group, topic).inc()

    def remove(self, record: Record) -> None:
        """It was taken."""
        if not self._refused:
            return
        with self._lock:
            was = self._refused.pop(record, None)
        if was is not None:
            seconds = round(self._clock.monotonic() - was.since, 1)
            log.info("append taken again", topic=was.topic, record=str(record), seconds=seconds)

    def hold_up(self, error: str) -> None:
        """No transaction gets through, and no record is to blame."""
        known = self._held_up
        self._held_up = Refusal("", known.since if known is not None else self._clock.monotonic(), error)

    def go_on(self) -> None:
        """One got through, or there is nothing to commit."""
        self._held_up = None

    def begin(self, topic: str) -> bool:
        """Whether an append may be tried now: of those to a topic that refuses them only one at a time, so that what
        waits for an answer holds one worker rather than all. `end` follows."""
        with self._lock:
            trying = self._trying.get(topic, 0)
            if trying and any(one.topic == topic for one in self._refused.values()):
                return False
            self._trying[topic] = trying + 1
            return True

    def end(self, topic: str) -> None:
        """A try has ended."""
        with self._lock:
            self._trying[topic] -= 1

    def stays(self) -> frozenset[OwnedPartition]:
        """The partitions that rest until the broker takes what follows from their records."""
        return frozenset(record.owned for record in self._current())

    def topics(self) -> frozenset[str]:
        """Those that refuse appends."""
        return frozenset(topic for one in self._current().values() for topic in one.topic.split(", "))

    def told(self) -> list[str]:
        """A sentence for each topic that refuses appends, and one for transactions that do not get through."""
        topics: dict[str, list[Refusal]] = {}
        for refusal in self._current().values():
            topics.setdefault(refusal.topic, []).append(refusal)
        now, held_up = self._clock.monotonic(), self._held_up
        still = []
        if held_up is not None and now - held_up.since > TELL_SECONDS:
            still = [f"no transaction has got through for {now - held_up.since:.0f} s: {held_up.error}"]
        return still + [
            f"{topic} has refused what follows from {len(found)} records for"
            f" {now - min(one.since for one in found):.0f} s: {found[-1].error}"
            for topic, found in topics.items()
        ]

    def _current(self) -> dict[Record, Refusal]:
        if not self._refused:
            return {}
        with self._lock:
            # Not those whose partition has gone to another member meanwhile, and not those that are done: the append
            # that was not answered had landed, and its copy was read.
            self._refused = {
                record: one for record, one in self._refused.items() if record.owned.active and not record.done
            }
            return self._refused.copy()


class Appender:
    """Appends, and waits for the broker's acknowledgement.

    Args:
        producer: the group's.
        names: topic names on the cluster.
        refusals: told what is not taken.
    """

    def __init__(self, producer: LogProducer, names: Names, refusals: Refusals) -> None:
        self._producer = producer
        self._names = names
        self._refusals = refusals

    def put(self, record: Record, append: Append) -> None:
        """Append what follows from a record; it is in the log when this returns.

        Raises:
            TooLarge: the topic takes no record of that size.
            NotNow: the broker does not take it now.
        """
        if not self._refusals.begin(append.topic):
            raise NotNow from PublishError(f"{append.topic}: another append to it is tried first")
        try:
            self._produce(append)
        except PublishError as error:
            if is_too_large(error):
                self._refusals.count(append.topic)
                raise TooLarge(str(error)) from error
            self._refusals.add(record, append.topic, str(error))
            raise NotNow from error
        finally:
            self._refusals.end(append.topic)
        record.appended = True
        self._refusals.remove(record)

    def refuse(self, record: Record, append: Append, error: TooLarge) -> None:
        """Nothing that stands for the record is small enough for the topic."""
        self._refusals.add(record, append.topic, str(error))

    def _produce(self, append: Append) -> None:
        self._producer.produce(
            self._names.topic(append.topic),
            key=append.key,
            value=append.value,
            headers=append.headers,
            partition=append.partition,
            timestamp_ms=append.timestamp_ms,
        ).result()
