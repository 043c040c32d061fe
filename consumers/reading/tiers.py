"""Reads retry topics ahead: what waits is known by key, origin, version and due time, payloads as far as they fit.

A copy that may run and whose payload was not kept is read again: its partition is read once more from there, up to the
last one that is wanted, and what is passed by on the way is kept as far as there is room. Then reading goes on where it
had come to.
"""

from typing import Any

from offsetzero.clock import Clock
from offsetzero.consumers.order import UNMOVED, Copy, Order
from offsetzero.consumers.reading.fetching import Fetching
from offsetzero.consumers.reading.marks import Mark, read_mark
from offsetzero.consumers.record import OwnedPartition, RawHeaders, Record
from offsetzero.consumers.working.dispatch import Dispatcher
from offsetzero.retry import headers as retry_headers


class Tiers:
    """Belongs to the polling thread.

    Args:
        dispatcher: gets what was read.
        clock: due times.
        limit: bytes of payloads of records that wait.
    """

    def __init__(self, dispatcher: Dispatcher, clock: Clock, limit: int) -> None:
        self._dispatcher = dispatcher
        self._clock = clock
        self._limit = limit
        self._room = 0
        self._now, self._now_ms = 0.0, 0  # of the batch
        self._copies: list[Copy] = []
        self._again: list[tuple[Copy, Record]] = []
        self._rereading: dict[OwnedPartition, int] = {}  # up to which offset

    def begin(self) -> None:
        """A batch of records follows."""
        self._room = self._limit - self._dispatcher.waiting_bytes
        self._now, self._now_ms = self._clock.monotonic(), self._clock.now_ms()

    def read(self, stay: OwnedPartition, message: Any, headers: RawHeaders) -> None:
        """A record of a retry partition was read, for the first time or again."""
        offset = message.offset()
        mark = read_mark(dict(headers), stay.partition)
        if stay.position is not None and offset < stay.position:
            self._read_again(stay, offset, message, headers, mark)
            return
        record: Record | None = None
        if self._room > 0 or mark is None:
            record = Record(stay, offset, message.key(), message.value(), headers, message.timestamp()[1])
            self._room -= record.size
        copy = self._copy(stay, offset, message, mark)
        if record is not None:
            copy.record, record.copy = record, copy
        stay.deliver(copy)
        self._copies.append(copy)

    def end(self, fetching: Fetching) -> None:
        """The batch is over: what was read waits, and what is wanted and not in memory is read again."""
        dispatcher = self._dispatcher
        if self._copies:
            copies, self._copies = self._copies, []
            dispatcher.take_in(copies)
        if self._again:
            again, self._again = self._again, []
            dispatcher.refill(again, self._limit)
        wanted = dispatcher.wanted()
        if not wanted and not self._rereading:
            return
        for stay, offsets in wanted.items():
            if stay.active and stay not in self._rereading and not fetching.place_at(stay, offsets[0]):
                stay.cursor = offsets[0]
                self._rereading[stay] = offsets[-1]
        for stay, last in list(self._rereading.items()):
            if not stay.active:
                del self._rereading[stay]
            elif (stay not in wanted or stay.cursor is None or stay.cursor > last) and (
                stay.position is None or not fetching.place_at(stay, stay.position)
            ):
                stay.cursor = None
                del self._rereading[stay]

    def due(self, mark: Mark | None, timestamp_ms: int) -> float:
        """When a retry record is due, monotonic; no later than was meant when it was appended (clock steps)."""
        if mark is None or not mark.version[2]:
            return 0.0
        if (meant := mark.version[2] - timestamp_ms) > retry_headers.MAX_WAIT_MS:
            return self._now  # nobody appends such a copy: it is read at once, and turns out to be poison
        return self._now + min(mark.version[2] - self._now_ms, meant) / 1000

    def _read_again(
        self, stay: OwnedPartition, offset: int, message: Any, headers: RawHeaders, mark: Mark | None
    ) -> None:
        if stay not in self._rereading:
            return  # fetched before the position was chosen
        stay.cursor = offset + 1
        order = stay.orders.get(mark.topic_id) if mark is not None else None
        copy = order.live.get(mark.origin) if order is not None and mark is not None else None
        if copy is not None and copy.stay is stay and copy.offset == offset and copy.record is None:
            record = Record(stay, offset, message.key(), message.value(), headers, message.timestamp()[1])
            record.copy = copy
            self._again.append((copy, record))

    def _copy(self, stay: OwnedPartition, offset: int, message: Any, mark: Mark | None) -> Copy:
        if mark is None:  # somebody else wrote it, or it cannot be read: nothing waits for it, nor it for anything
            return Copy(_order(stay, stay.topic_id.encode()), offset, offset, UNMOVED, stay, offset)
        lane = self._dispatcher.lane(message.key(), mark.origin)
        due = self.due(mark, message.timestamp()[1])
        order = stay.orders.get(mark.topic_id) or _order(stay, mark.topic_id)
        return Copy(order, lane, mark.origin, mark.version, stay, offset, due)


def _order(stay: OwnedPartition, topic_id: bytes) -> Order:
    """That of a source of a retry partition; a topic that the group does not read gets one of its own."""
    order = stay.orders.get(topic_id)
    if order is None:
        known = all(one.is_complete for one in stay.orders.values())
        order = stay.orders[topic_id] = Order(stay, is_source=False, is_complete=known)
    return order
