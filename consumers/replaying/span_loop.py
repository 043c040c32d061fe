"""The polling thread of a side job: reads spans with a consumer of its own, which is a member of no group."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from confluent_kafka import Consumer, KafkaError, TopicPartition

from offsetzero.clock import Clock
from offsetzero.consumers.reading.handed import Handed
from offsetzero.consumers.reading.marks import read_mark
from offsetzero.consumers.reading.pressure import BATCH, MAX_SPAN
from offsetzero.consumers.record import OwnedPartition, Record
from offsetzero.consumers.replaying.looking import Wanted
from offsetzero.consumers.replaying.spans import Span
from offsetzero.consumers.working.dispatch import Dispatcher, Room
from offsetzero.consumers.working.parking import Parking
from offsetzero.errors import GroupStopped
from offsetzero.settings import GroupSettings
from offsetzero.store.forced import Forced
from offsetzero.store.holds import Hold
from offsetzero.store.starts import Place
from offsetzero.topics.names import Names

POLL_SECONDS = 0.05


@dataclass(frozen=True, slots=True)
class Waiting:
    """What of the group's is not the job's to run: it is read first.

    Attributes:
        retries: where each retry partition is to be read from, and up to where.
        holds: the keys that wait for an operator.
        forced: what the group was told to handle again; None for nothing.
    """

    retries: Mapping[Place, tuple[int, int]]
    holds: Sequence[Hold] = ()
    forced: Forced | None = None


class SpanLoop:
    """In the place of `PollLoop`; every method is called by one thread.

    A record with a copy in a retry topic is not run: the copy will be. Another one of its key is parked behind it, as
    the group's own members do, so that the order of keys is kept between them and the job.

    Args:
        consumer: read with; closed by `close`.
        spans: what is read.
        wanted: which of their records are meant.
        waiting: what waits in the group's retry topics.
        names: topic names on the cluster.
        dispatcher: gets the records.
        parking: appends records whose key waits.
        limits: how much may be in flight.
        clock: bounds waits.
        ended: called when all is done that this process can do.
    """

    def __init__(
        self,
        consumer: Consumer,
        spans: Sequence[Span],
        wanted: Wanted,
        waiting: Waiting,
        names: Names,
        dispatcher: Dispatcher,
        parking: Parking,
        limits: GroupSettings,
        clock: Clock,
        ended: Callable[[], None],
    ) -> None:
        self._consumer = consumer
        self._wanted = wanted
        self._waiting = waiting
        self._names = names
        self._dispatcher = dispatcher
        self._parking = parking
        self._limits = limits
        self._clock = clock
        self._ended = ended
        self._spans = {self._at(span.place): span for span in spans if span.records}
        self._stays = {
            place: OwnedPartition(span.topic, span.topic_id, span.partition) for place, span in self._spans.items()
        }
        for stay in self._stays.values():
            stay.forced = waiting.forced.of_partition(stay.partition) if waiting.forced is not None else None
        self._orders = {
            (span.topic_id.encode(), span.partition): self._stays[place].order for place, span in self._spans.items()
        }
        self._rested: frozenset[OwnedPartition] = frozenset()
        self._handed = Handed()
        self._to_read: dict[tuple[str, int], int] = {}  # up to which offset
        self._reads_spans = False
        self.read = 0
        """Offsets that were read."""
        self.meant = 0
        """Records that are meant."""

    @property
    def done(self) -> int:
        """How many of the offsets that were read need no work any more."""
        return max(0, self.read - self._dispatcher.in_flight)

    def subscribe(self) -> None:
        """Begin with what waits in the group's retry topics."""
        for hold in self._waiting.holds:
            if (order := self._orders.get((hold.topic_id.encode(), hold.partition))) is not None:
                self._dispatcher.hold(order, hold)
        numbers = {span.partition for span in self._spans.values()}
        parts = {place: part for place, part in self._waiting.retries.items() if place[1] in numbers}
        self._assign({self._at(place): part for place, part in parts.items() if part[0] < part[1]})

    def turn(self) -> None:
        """One round: due records, back-pressure, fetch. Blocks for about 50 ms when nothing happens.

        Raises:
            GroupStopped: the log cannot be read, or is gone from where it was to be read.
        """
        due = self._dispatcher.tick()
        self._dispatcher.park(self._parking)
        if not self._to_read:
            if self._reads_spans:
                self._end_when_done()
                return
            self._reads_spans = True
            for place, stay in self._stays.items():
                stay.begin(self._spans[place].first, None)
            self._assign({place: (span.first, span.end) for place, span in self._spans.items()})
        limit = Room(self._limits.max_in_flight, self._limits.max_in_flight_bytes)
        room = self._dispatcher.wait_for_room(limit, 1, POLL_SECONDS)
        if room:
            timeout = POLL_SECONDS if due is None else min(POLL_SECONDS, due)
            self._accept(self._handed.fetch(self._consumer, min(BATCH, room), timeout))

    def rest(self, stays: frozenset[OwnedPartition]) -> None:
        """Fetch nothing of these until they are not among them any more."""
        if stays != self._rested and self._reads_spans:
            rested = [self._place(stay) for stay in stays - self._rested]
            again = [self._place(stay) for stay in self._rested - stays]
            self._rested = stays
            self._consumer.pause([one for one in rested if (one.topic, one.partition) in self._to_read])
            self._consumer.resume([one for one in again if (one.topic, one.partition) in self._to_read])

    def drain(self, seconds: float, meanwhile: Callable[[], None] = lambda: None) -> list[Record]:
        """Begin nothing more, and wait for what runs, `seconds` at most; returns what still does."""
        self._dispatcher.close()
        deadline = self._clock.monotonic() + seconds
        while (left := self._dispatcher.wait_idle(POLL_SECONDS)) and self._clock.monotonic() < deadline:
            meanwhile()
        return left

    def close(self) -> None:
        """Close the consumer."""
        self._consumer.close()

    @property
    def undone(self) -> int:
        """Records whose work has not ended."""
        return sum(stay.head() is not None for stay in self._stays.values())

    # --- for the watch

    @property
    def member_id(self) -> str:
        """Empty: it is a member of no group."""
        return ""

    def join_anew(self) -> None:
        """Nothing: it is a member of no group."""

    @property
    def turnovers(self) -> int:
        """How often all that the client had fetched has been handed out, at least."""
        return self._handed.turnovers

    def stays(self) -> list[OwnedPartition]:
        """What is read."""
        return list(self._stays.values())

    def end(self, stay: OwnedPartition) -> int:
        """Where the span of a partition ends."""
        return self._spans[self._at(stay.place)].end

    # ---

    def _end_when_done(self) -> None:
        self._dispatcher.wait_idle(POLL_SECONDS)
        if not self._dispatcher.in_flight and not self._dispatcher.is_parking:
            self._ended()

    def _accept(self, messages: Sequence[Any]) -> None:
        records: list[Record] = []
        for message in messages:
            place = message.topic(), message.partition()
            if (error := message.error()) is not None:
                self._on_error(place, error)
                continue
            if place not in self._to_read:
                continue
            offset = message.offset()
            if offset < self._to_read[place]:
                try:
                    headers = message.headers() or []
                except UnicodeDecodeError:
                    headers = []
                if (stay := self._stays.get(place)) is None:
                    self._expect(place, message.key(), headers)
                else:
                    record = Record(stay, offset, message.key(), message.value(), headers, message.timestamp()[1])
                    self._meet(stay, record, records)
            if offset + 1 >= self._to_read[place]:
                self._finish(place)
        if records:
            self._dispatcher.add(records)

    def _meet(self, stay: OwnedPartition, record: Record, records: list[Record]) -> None:
        assert stay.position is not None  # noqa: S101 - it was begun
        self.read += record.offset + 1 - stay.position
        if self._wanted.has(record):
            self.meant += 1
            stay.forget_done(MAX_SPAN)
            stay.deliver(record)
            records.append(record)
        else:
            stay.reach(record.offset + 1)

    def _expect(self, place: tuple[str, int], key: bytes | None, headers: Sequence[tuple[str, bytes | None]]) -> None:
        """A copy of the group's: those of its key wait for it."""
        mark = read_mark(dict(headers), place[1])
        if mark is not None and (order := self._orders.get((mark.topic_id, place[1]))) is not None:
            self._dispatcher.expect(order, key, mark.origin, mark.version)

    def _on_error(self, place: tuple[str, int], error: KafkaError) -> None:
        if error.code() == KafkaError._PARTITION_EOF:
            self._finish(place)
        elif error.fatal() or error.code() in (
            KafkaError._AUTO_OFFSET_RESET,
            KafkaError.TOPIC_AUTHORIZATION_FAILED,
            KafkaError.UNKNOWN_TOPIC_OR_PART,
        ):
            raise GroupStopped(f"the replay of {place[0]}/{place[1]} cannot go on: {error.str()}")

    def _finish(self, place: tuple[str, int]) -> None:
        if self._to_read.pop(place, None) is None:
            return
        if (stay := self._stays.get(place)) is not None and stay.position is not None:
            self.read += max(0, self._spans[place].end - stay.position)
            stay.reach(self._spans[place].end)
        self._consumer.pause([TopicPartition(*place)])

    def _assign(self, parts: Mapping[tuple[str, int], tuple[int, int]]) -> None:
        self._to_read = {place: end for place, (_, end) in parts.items()}
        self._consumer.assign([TopicPartition(*place, start) for place, (start, _) in parts.items()])

    def _place(self, stay: OwnedPartition) -> TopicPartition:
        return TopicPartition(*self._at(stay.place))

    def _at(self, place: Place) -> tuple[str, int]:
        return self._names.topic(place[0]), place[1]
