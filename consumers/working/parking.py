"""Parking: a source record that finds its key waiting is appended to the first tier, once (design section 7)."""

from collections import deque
from collections.abc import Iterable, Iterator

from offsetzero import metrics
from offsetzero.clock import Clock
from offsetzero.consumers.record import OwnedPartition, Record
from offsetzero.consumers.working.appends import Refusals, is_too_large
from offsetzero.errors import PublishError
from offsetzero.producers.delivery import Delivery
from offsetzero.producers.log import LogProducer
from offsetzero.retry import headers as retry_headers
from offsetzero.retry.headers import Hop, Origin
from offsetzero.topics.names import Names


class Parked:
    """Records on their way to the first tier, each in flight until the broker has acknowledged it. Pure."""

    def __init__(self) -> None:
        self._waiting: deque[Record] = deque()
        self._sending: dict[Record, None] = {}  # taken to be sent; not known yet whether it was
        self._sent: deque[tuple[Record, Delivery]] = deque()

    def add(self, record: Record) -> None:
        """Have it sent."""
        self._waiting.append(record)

    def take(self) -> list[Record]:
        """What is to be sent now."""
        taken, self._waiting = self._waiting, deque()
        self._sending = dict.fromkeys(taken)
        return list(taken)

    def sent(self, record: Record, delivery: Delivery) -> None:
        """It is on its way."""
        self._sent.append((record, delivery))
        del self._sending[record]

    def refused(self, record: Record) -> None:
        """It could not be sent."""
        del self._sending[record]

    def answered(self) -> Iterator[tuple[Record, PublishError | None]]:
        """What the broker has answered since the last call: the record, and what was wrong if it was not taken."""
        while self._sent and self._sent[0][1].done():
            record, delivery = self._sent.popleft()
            try:
                delivery.result(0)
            except PublishError as error:
                yield record, error
            else:
                yield record, None

    def on_their_way(self) -> Iterable[Record]:
        """Those that have no answer yet."""
        return [*self._sending, *(record for record, _ in self._sent)]

    def purge(self) -> list[Record]:
        """Take out what is not sent yet and was revoked."""
        gone = [record for record in self._waiting if not record.owned.active]
        self._waiting = deque(record for record in self._waiting if record.owned.active)
        return gone

    def __bool__(self) -> bool:
        return bool(self._sent or self._waiting)


class Parking:
    """Appends them; belongs to the polling thread, which alone knows for sure what is owned.

    Args:
        group: the group's name.
        topic: the first tier, by our name.
        producer: appends.
        names: of topics on the cluster.
        clock: wall time, for the records' timestamps.
        refusals: told what is not taken.
    """

    def __init__(
        self, group: str, topic: str, producer: LogProducer, names: Names, clock: Clock, refusals: Refusals
    ) -> None:
        self._group = group
        self._topic = topic
        self._producer = producer
        self._names = names
        self._clock = clock
        self._refusals = refusals

    def send(self, record: Record) -> Delivery | None:
        """Append one record; returns before it is acknowledged, None when it was refused at once."""
        stay: OwnedPartition = record.owned
        origin = Origin(stay.topic_id, stay.topic, stay.partition, record.offset)
        hop = Hop(origin, hop=1, timestamp_ms=record.timestamp_ms)
        try:
            delivery = self._producer.produce(
                self._names.topic(self._topic),
                key=record.key,
                value=record.value,
                headers=retry_headers.write(record.headers, hop, None, self._group),
                partition=stay.partition,
                timestamp_ms=self._clock.now_ms(),
            )
        except PublishError as error:
            self.answered(record, error)
            return None
        metrics.PARKED.labels(self._group).inc()
        return delivery

    def answered(self, record: Record, error: PublishError | None) -> None:
        """The broker has taken a record, or has not: then it is sent again, and its partition rests.

        One that is too large waits where it is: see `Dispatcher`.
        """
        if error is None:
            self._refusals.remove(record)
        elif is_too_large(error):
            self._refusals.count(self._topic)
            self._refusals.remove(record)
        else:
            self._refusals.add(record, self._topic, str(error))
