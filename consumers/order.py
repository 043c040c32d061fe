"""The order of keys across retries: which copy of a record is live, and which may run. Pure (design section 7).

Of one source partition this knows every record that waits in a retry topic, or is on its way to one. *Waiting* besides
are those that were delivered and not parked: they are in the lanes, and a key is never in both. So three rules keep
the order of a key:

- a source record that finds its key waiting here is parked: appended to the first tier, whatever its place in the key;
- of a key only the copy with the lowest origin runs, once the source was read past its origin, and the retry topics
  up to where they ended when they were assigned;
- of an origin only the copy with the highest version is live; older ones are finished unread.
"""

from __future__ import annotations

import heapq
from enum import Enum, auto
from typing import TYPE_CHECKING, TypeAlias

if TYPE_CHECKING:
    from offsetzero.consumers.record import OwnedPartition, Record

Version: TypeAlias = tuple[int, int, int]
"""`redrive_no`, `hop` and `due_ms` of a copy: of one origin the highest is live."""
Lane: TypeAlias = bytes | int
"""A key; what has no order has a lane of its own, its origin."""
UNMOVED: Version = (0, 0, 0)
"""Of a record in its source topic."""
PARKED: Version = (0, 1, 0)
"""Of a record that was appended because its key waits: due at once."""


class Meeting(Enum):
    """What becomes of a source record."""

    RUN = auto()
    PARK = auto()
    UNREAD = auto()  # a later copy of it is known: it counts as done


class Copy:
    """A copy of a record in a retry topic, or, without `stay`, what is known of one that will be read.

    Attributes:
        order: of its source partition.
        lane: whose turn it awaits.
        origin: its offset in the source topic.
        version: which of the copies of its origin it is.
        stay: the retry partition that it was read from.
        offset: where it lies there.
        due: monotonic seconds before which it may not run.
        record: with its payload; None while that is not in memory.
        done: whether its offset may be committed.
        queued: it is known to be the first of its lane, and waits for something else than that.
    """

    __slots__ = ("done", "due", "lane", "offset", "order", "origin", "queued", "record", "stay", "version")

    def __init__(
        self,
        order: Order,
        lane: Lane,
        origin: int,
        version: Version,
        stay: OwnedPartition | None = None,
        offset: int = -1,
        due: float = 0.0,
        record: Record | None = None,
    ) -> None:
        self.order = order
        self.lane = lane
        self.origin = origin
        self.version = version
        self.stay = stay
        self.offset = offset
        self.due = due
        self.record = record
        self.done = False
        self.queued = False

    @property
    def key(self) -> bytes | None:
        """The record's key."""
        return self.lane if isinstance(self.lane, bytes) else None

    def __lt__(self, other: Copy) -> bool:
        return self.origin < other.origin

    def __str__(self) -> str:
        return f"{self.stay}@{self.offset}"


class Order:
    """The records of one source partition that wait in retry topics.

    Args:
        home: the stay that it ends with.
        is_source: whether that is the source partition; copies of a topic that is not read have no source to wait for.
        is_complete: whether all is known that waited when the partition was assigned.
    """

    __slots__ = ("_lanes", "_out", "bytes", "held", "home", "is_complete", "is_source", "live", "unpassed")

    def __init__(self, home: OwnedPartition, *, is_source: bool = True, is_complete: bool = False) -> None:
        self.home = home
        self.is_source = is_source
        self.is_complete = is_complete
        self.live: dict[int, Copy] = {}
        """By origin."""
        self.held: set[int] = set()
        """Origins whose dead letters hold up their lanes; a copy that is expected stands for each."""
        self.bytes = 0
        """Of the payloads in memory, of copies that wait."""
        self.unpassed: list[Copy] = []
        """A heap of those that could run if the source had been read past their origin, and all were known."""
        self._lanes: dict[Lane, list[Copy]] = {}  # heaps; below its first, copies that are no longer live
        self._out: dict[Lane, Copy] = {}  # may run, or does

    def meets(self, lane: Lane, offset: int) -> Meeting:
        """What becomes of a source record that was delivered."""
        known = self.live.get(offset)
        if known is not None and known.version > UNMOVED:
            return Meeting.UNREAD
        return Meeting.PARK if lane in self._lanes else Meeting.RUN

    def expect(self, lane: Lane, origin: int, version: Version) -> Copy | None:
        """A copy was appended, or is being: it waits from now on.

        Returns:
            A copy of the same record that was read, and is to be finished unread.
        """
        return self.take_in(Copy(self, lane, origin, version))

    def take_in(self, copy: Copy) -> Copy | None:
        """A copy was read.

        Returns:
            The copy that is to be finished unread: this one, an older one, or None for neither.
        """
        known = self.live.get(copy.origin)
        if known is not None and (
            copy.version < known.version or (copy.version == known.version and known.stay is not None)
        ):
            return copy if copy.stay is not None else None
        self.live[copy.origin] = copy
        heapq.heappush(self._lanes.setdefault(copy.lane, []), copy)
        if known is None or known.stay is None or self.is_out(known):
            return None  # one that runs ends by itself
        return known

    def leads(self, copy: Copy) -> bool:
        """Whether nothing of its lane comes before a copy that was taken in: if so, whose turn it is may be new."""
        return self._lanes[copy.lane][0].origin >= copy.origin

    def first(self, lane: Lane) -> Copy | None:
        """The copy whose turn it is; None when there is none, or one is out."""
        if lane in self._out or (heap := self._lanes.get(lane)) is None:
            return None
        while heap:
            if self.live.get(heap[0].origin) is heap[0]:
                return heap[0]
            heapq.heappop(heap)
        del self._lanes[lane]
        return None

    def has_passed(self, origin: int) -> bool:
        """Whether no record before it is still to come: the source was read past it, and the copies are known."""
        if not self.is_complete:
            return False
        return not self.is_source or (self.home.position is not None and self.home.position > origin)

    def let_out(self, copy: Copy) -> None:
        """It may run."""
        self._out[copy.lane] = copy

    def is_out(self, copy: Copy) -> bool:
        """Whether it may run, or does."""
        return self._out.get(copy.lane) is copy

    def take_back(self, copy: Copy) -> bool:
        """It was out, and has not begun.

        Returns:
            Whether it is still live, and waits again; otherwise it is to be finished unread.
        """
        del self._out[copy.lane]
        return self.live.get(copy.origin) is copy

    def end(self, copy: Copy) -> None:
        """It was out, and is done: it is the next one's turn. Its record may live on in another copy."""
        if self.is_out(copy):
            del self._out[copy.lane]
        if self.live.get(copy.origin) is copy:
            del self.live[copy.origin]
            self.first(copy.lane)  # ends a lane in which nothing waits
        elif copy.lane in self._lanes:
            self.first(copy.lane)

    def forget(self) -> None:
        """Let go of all: the partition was revoked, and somebody may still hold on to it."""
        self.live.clear()
        self._lanes.clear()
        self._out.clear()
        self.unpassed.clear()
        self.bytes = 0
