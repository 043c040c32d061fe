"""What waits in retry topics: when each copy may run, in the order of its key. Pure: no locks, no threads, no I/O."""

import heapq
import itertools
from collections.abc import Iterable

from offsetzero.consumers.order import Copy, Lane, Order, Version
from offsetzero.consumers.record import OwnedPartition, Record
from offsetzero.consumers.working.run import Doing


class Copies:
    """The copies of all partitions of a member. The dispatcher calls it with its lock held.

    Only the first copy of a lane is looked at: it waits for its due time, then for the source to be read past its
    origin, then for its payload if that is not in memory, and then it may run. A copy that becomes the first of its
    lane later is looked at then.
    """

    def __init__(self) -> None:
        self._orders: dict[Order, None] = {}  # with something that waits
        self._due: list[tuple[float, int, Copy]] = []
        self._ties = itertools.count()
        self._unpassed: dict[Order, None] = {}
        self._ready: list[Copy] = []
        self.wanted: dict[Copy, None] = {}
        """Those that may run, but for their payload."""

    @property
    def count(self) -> int:
        """Records that wait, those included whose copy is on its way."""
        return sum(len(order.live) for order in self._orders)

    @property
    def bytes(self) -> int:
        """Of the payloads in memory."""
        return sum(order.bytes for order in self._orders)

    def take_in(self, copies: Iterable[Copy], now: float) -> None:
        """Copies were read; in the order of their offsets."""
        for copy in copies:
            if copy.record is not None:
                copy.order.bytes += copy.record.size
            unread = copy.order.take_in(copy)
            self._orders[copy.order] = None
            if unread is not None:
                self._finish_unread(unread)
            if unread is not copy and copy.order.leads(copy):
                self._offer(copy.order, copy.lane, now)

    def expect(self, order: Order, lane: Lane, origin: int, version: Version) -> None:
        """A copy was appended, or is being."""
        self._orders[order] = None
        unread = order.expect(lane, origin, version)
        if unread is not None:
            self._finish_unread(unread)

    def take_back(self, copy: Copy, now: float) -> None:
        """It could have run, and has not begun."""
        assert copy.record is not None  # noqa: S101 - it was let out with it
        copy.order.bytes += copy.record.size
        if not copy.order.take_back(copy):
            self._finish_unread(copy)
        self._offer(copy.order, copy.lane, now)

    def end(self, copy: Copy, now: float) -> None:
        """It is done."""
        copy.order.end(copy)
        self._offer(copy.order, copy.lane, now)
        if not copy.order.live:
            self._orders.pop(copy.order, None)

    def tick(self, now: float) -> float | None:
        """Look at what may run by now.

        Returns:
            When the next one is due, None when none waits for that.
        """
        for order in list(self._unpassed):
            while order.unpassed and order.has_passed(order.unpassed[0].origin):
                self._look_again(heapq.heappop(order.unpassed), now)
            if not order.unpassed:
                del self._unpassed[order]
        while self._due and self._due[0][0] <= now:
            self._look_again(heapq.heappop(self._due)[2], now)
        return self._due[0][0] if self._due else None

    def refill(self, read: Iterable[tuple[Copy, Record]], limit: int, now: float) -> None:
        """Payloads were read again."""
        size = self.bytes
        for copy, record in read:
            is_wanted = copy in self.wanted
            if copy.record is not None or copy.done or not (is_wanted or size < limit):
                continue
            copy.record = record
            copy.order.bytes += record.size
            size += record.size
            if is_wanted:
                del self.wanted[copy]
                self._look_again(copy, now)

    def wanted_of(self) -> dict[OwnedPartition, list[int]]:
        """The offsets of `wanted` by partition, in order."""
        found: dict[OwnedPartition, list[int]] = {}
        for copy in [copy for copy in self.wanted if copy.done or copy.order.first(copy.lane) is not copy]:
            copy.queued = False  # it was superseded, or is not the first any more
            del self.wanted[copy]
        for copy in self.wanted:
            assert copy.stay is not None  # noqa: S101 - it was read
            found.setdefault(copy.stay, []).append(copy.offset)
        return {stay: sorted(offsets) for stay, offsets in found.items()}

    def let_out(self) -> list[Record]:
        """What may run; it is no longer counted as waiting in memory."""
        ready, self._ready = self._ready, []
        records = []
        for copy in ready:
            if copy.record is not None and copy.order.home.active:
                copy.order.bytes -= copy.record.size
                copy.record.held = copy.origin in copy.order.held
                records.append(copy.record)
        return records

    def purge(self) -> None:
        """Forget what belongs to partitions that were revoked."""
        for order in self._orders:
            if not order.home.active:
                order.forget()
        self._orders = {order: None for order in self._orders if order.home.active}
        self._unpassed = {order: None for order in self._unpassed if order.home.active}
        self._due = [item for item in self._due if item[2].order.home.active]
        heapq.heapify(self._due)
        self.wanted = {copy: None for copy in self.wanted if copy.order.home.active}

    def doing(self, copy: Copy, now: float) -> Doing | None:
        """What an undone copy is doing; None when it is out, so that others know."""
        order = copy.order
        if order.is_out(copy):
            return None
        first = order.first(copy.lane)
        if first is copy and copy.due <= now and order.has_passed(copy.origin):
            return Doing.NOTHING
        return Doing.WAITING

    # ---

    def _offer(self, order: Order, lane: Lane, now: float) -> None:
        """See what the first copy of a lane waits for."""
        copy = order.first(lane)
        if copy is None or copy.queued or copy.stay is None:
            return  # one that was not read yet is looked at then
        if copy.due > now:
            copy.queued = True
            heapq.heappush(self._due, (copy.due, next(self._ties), copy))
        elif not order.has_passed(copy.origin):
            copy.queued = True
            heapq.heappush(order.unpassed, copy)
            self._unpassed[order] = None
        elif copy.record is None:
            copy.queued = True
            self.wanted[copy] = None
        else:
            order.let_out(copy)
            self._ready.append(copy)

    def _look_again(self, copy: Copy, now: float) -> None:
        copy.queued = False
        self._offer(copy.order, copy.lane, now)

    @staticmethod
    def _finish_unread(copy: Copy) -> None:
        copy.done = True
        if copy.record is not None:
            copy.order.bytes -= copy.record.size
            copy.record.done = True
            copy.record.free()
            copy.record = None
