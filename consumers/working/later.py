"""Records that wait for their time. Pure: the dispatcher calls it with its lock held."""

import heapq
import itertools
from collections.abc import Iterator
from enum import Enum, auto

from offsetzero.consumers.record import Record


class Place(Enum):
    """Where a record is meanwhile."""

    OUTSIDE = auto()  # in no lane: what is read in the order of offsets, and is not due
    LANE = auto()  # it keeps that of its key: the same attempt again
    PARKING = auto()  # behind others of its key: the broker has not taken it


class Later:
    """A heap by due time, in monotonic seconds."""

    def __init__(self) -> None:
        self.count = 0
        """Records outside."""
        self.bytes = 0
        """Of them."""
        self.held = 0
        """Records that keep their lanes."""
        self._heap: list[tuple[float, int, Record, Place]] = []
        self._ties = itertools.count()

    def add(self, record: Record, due: float, place: Place) -> None:
        """Have a record wait."""
        record.due = due
        heapq.heappush(self._heap, (due, next(self._ties), record, place))
        self._note(record, place, 1)

    def due(self, now: float) -> Iterator[tuple[Record, Place]]:
        """Take out those whose time has come."""
        while self._heap and self._heap[0][0] <= now:
            _, _, record, place = heapq.heappop(self._heap)
            record.due = None
            self._note(record, place, -1)
            yield record, place

    @property
    def next(self) -> float | None:
        """When the next one is due."""
        return self._heap[0][0] if self._heap else None

    def purge(self) -> list[tuple[Record, Place]]:
        """Take out what was revoked."""
        gone = [(record, place) for _, _, record, place in self._heap if not record.owned.active]
        self._heap = [item for item in self._heap if item[2].owned.active]
        heapq.heapify(self._heap)
        for record, place in gone:
            self._note(record, place, -1)
        return gone

    def _note(self, record: Record, place: Place, by: int) -> None:
        if place is Place.LANE:
            self.held += by
        elif place is Place.OUTSIDE:
            self.count += by
            self.bytes += by * record.size
