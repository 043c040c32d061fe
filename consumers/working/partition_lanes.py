"""Partition lanes: the records of a partition run in the order of their offsets, all of one partition in one run."""

from collections import deque
from collections.abc import Callable, Sequence

from offsetzero.consumers.record import OwnedPartition, Record


class PartitionLanes:
    """Which records may run now where offsets are part of a transaction. Pure: no locks, no threads.

    A transaction that commits an offset must hold the outputs of everything before it and of nothing behind it. So
    what is handed out of a partition is always what comes first in it, and nothing more of it until that has ended.
    Has the methods of `KeyLanes`, which a dispatcher calls.
    """

    def __init__(self) -> None:
        self._queued: dict[OwnedPartition, deque[Record]] = {}  # never an empty one
        self._taken: dict[OwnedPartition, int] = {}  # records handed out or held
        self._ready: deque[OwnedPartition] = deque()  # with something queued and nothing taken

    def add(self, record: Record) -> None:
        """Queue a record; those of a partition come in the order of their offsets."""
        if (queued := self._queued.get(record.owned)) is not None:
            queued.append(record)
            return
        self._queued[record.owned] = deque((record,))
        self._offer(record.owned)

    def take(self) -> Record | None:
        """The first record of a partition of which nothing is taken."""
        if not self._ready:
            return None
        owned = self._ready.popleft()
        return self._pop(owned, 1)[0]

    def take_behind(self, record: Record, limit: int) -> list[Record]:
        """Up to `limit` records that follow a taken one, in their order, for the same run."""
        queued = self._queued.get(record.owned)
        return self._pop(record.owned, min(limit, len(queued))) if queued and limit > 0 else []

    def hold(self, records: Sequence[Record]) -> list[Record]:
        """Of taken records that must run again later: the first of each partition, which keeps its lane until then.

        The others wait behind it.
        """
        heads: dict[OwnedPartition, Record] = {}
        behind = [record for record in records if heads.setdefault(record.owned, record) is not record]
        for record in reversed(behind):
            self._put_back(record)
        return list(heads.values())

    def again(self, record: Record) -> None:
        """Make a taken record ready once more, at its place in its partition."""
        self._put_back(record)
        self._offer(record.owned)

    first = again

    def finish(self, record: Record) -> None:
        """A taken record has ended."""
        self._end(record.owned)
        self._offer(record.owned)

    def purge(self, unwanted: Callable[[Record], bool]) -> list[Record]:
        """Take out what waits and is unwanted. What is taken or held ends by `finish`."""
        gone: list[Record] = []
        for owned, queued in list(self._queued.items()):
            gone += [record for record in queued if unwanted(record)]
            if kept := deque(record for record in queued if not unwanted(record)):
                self._queued[owned] = kept
            else:
                del self._queued[owned]
        self._ready = deque(owned for owned in self._ready if owned in self._queued)
        return gone

    @property
    def ready(self) -> int:
        """How many partitions have something to hand out."""
        return len(self._ready)

    def pauses(self, record: Record) -> bool:
        """Such a group has no limits."""
        return False

    @property
    def is_limited(self) -> bool:
        """Such a group has no limits."""
        return False

    @property
    def waiting(self) -> dict[str, int]:
        """So nothing waits for one."""
        return {}

    def _pop(self, owned: OwnedPartition, count: int) -> list[Record]:
        queued = self._queued[owned]
        taken = [queued.popleft() for _ in range(count)]
        if not queued:
            del self._queued[owned]
        self._taken[owned] = self._taken.get(owned, 0) + count
        return taken

    def _put_back(self, record: Record) -> None:
        self._end(record.owned)
        queued = self._queued.setdefault(record.owned, deque())
        place = next((n for n, other in enumerate(queued) if other.offset > record.offset), len(queued))
        queued.insert(place, record)

    def _end(self, owned: OwnedPartition) -> None:
        taken = self._taken[owned] - 1
        if taken:
            self._taken[owned] = taken
        else:
            del self._taken[owned]

    def _offer(self, owned: OwnedPartition) -> None:
        if owned in self._queued and owned not in self._taken:
            self._ready.append(owned)
