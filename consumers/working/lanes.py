"""Key lanes: records of one key run one after the other, records of different keys at once."""

from collections import deque
from collections.abc import Callable, Sequence

from offsetzero.consumers.record import Record
from offsetzero.consumers.working.limits import Limit, Limits


class KeyLanes:
    """Which records may run now. Pure: no locks, no threads.

    A record without a key has no order and is ready at once.

    Args:
        per_key: how many records of one key may run at once; over 1 their order is not kept.
        limits: how many of one tenant, and the like.
    """

    def __init__(self, per_key: int = 1, limits: Sequence[Limit] = ()) -> None:
        self._per_key = per_key
        self._limits = Limits(limits)
        self._is_limited = bool(limits)
        self._busy: dict[bytes, int] = {}  # of a key: ready, running or held
        self._behind: dict[bytes, deque[Record]] = {}  # of a key: what waits for those
        self._ready: deque[Record] = deque()  # but for the limits

    def add(self, record: Record) -> None:
        """Queue a record behind those of its key."""
        key = record.key
        if key is None:
            self._ready.append(record)
            return
        busy = self._busy.get(key, 0)
        if busy < self._per_key:
            self._busy[key] = busy + 1
            self._ready.append(record)
        elif (behind := self._behind.get(key)) is not None:
            behind.append(record)
        else:
            self._behind[key] = deque((record,))

    def take(self) -> Record | None:
        """The next record that may run now; it counts for its key and the limits until `finish`."""
        if not self._is_limited:
            return self._ready.popleft() if self._ready else None
        if (record := self._limits.take()) is not None:
            return record
        while self._ready:
            record = self._ready.popleft()
            if self._limits.admit(record):
                return record
        return None

    def take_behind(self, record: Record, limit: int) -> list[Record]:
        """Those that wait behind a taken record, in order, to be worked on in one call with it."""
        key = record.key
        behind = self._behind.get(key) if key is not None else None
        if behind is None or key is None or limit <= 0:
            return []
        taken = [behind.popleft() for _ in range(min(limit, len(behind)))]
        if not behind:
            del self._behind[key]
        self._busy[key] += len(taken)
        return taken

    def hold(self, records: Sequence[Record]) -> list[Record]:
        """Of taken records that must run again later: those that keep their lanes until then.

        The first of a key is one; the others, taken behind it, wait there again, in their order.
        """
        heads: dict[bytes, Record] = {}
        held: list[Record] = []
        behind: list[Record] = []
        for record in records:
            key = record.key
            if key is None or self._per_key > 1 or heads.setdefault(key, record) is record:
                held.append(record)
            else:
                behind.append(record)
        for record in reversed(behind):
            assert record.key is not None  # noqa: S101 - only a key has something behind it
            self._busy[record.key] -= 1
            self._behind.setdefault(record.key, deque()).appendleft(record)
        return held

    def again(self, record: Record) -> None:
        """Make a taken record ready once more, before everything else of its key."""
        self._stop(record)
        self._ready.append(record)

    def first(self, record: Record) -> None:
        """The same, before everything else that is ready: it was taken, and not begun."""
        self._stop(record)
        self._ready.appendleft(record)

    def finish(self, record: Record) -> None:
        """A taken record has ended: the next one of its key becomes ready."""
        if self._is_limited:
            self._limits.leave(record)
        self._free(record.key)

    def part(self, key: bytes | None, unwanted: Callable[[Record], bool]) -> list[Record]:
        """Take out what waits behind those of a key and is unwanted, in order; what is taken or ready stays."""
        behind = self._behind.get(key) if key is not None else None
        if behind is None or key is None:
            return []
        gone, kept = _part(unwanted, behind)
        if kept:
            self._behind[key] = kept
        else:
            del self._behind[key]
        return gone

    def purge(self, unwanted: Callable[[Record], bool]) -> list[Record]:
        """Take out what waits, or is ready, and is unwanted. What is taken or held ends by `finish`."""
        gone, self._ready = _part(unwanted, self._ready)
        gone += self._limits.purge(unwanted)
        waiting: list[Record] = []
        for key, behind in list(self._behind.items()):
            out, kept = _part(unwanted, behind)
            waiting += out
            if kept:
                self._behind[key] = kept
            else:
                del self._behind[key]
        for record in gone:
            self._free(record.key)
        return gone + waiting

    def most(self, limit: str) -> int | None:
        """How many records of one kind a limit lets run at once; None without one of this name."""
        return self._limits.most(limit)

    def resize(self, limit: str, most: int) -> None:
        """Let so many of one kind run at once from now on; what runs goes on."""
        self._limits.resize(limit, most)

    def pauses(self, record: Record) -> bool:
        """Whether nothing like this record may begin, also when nothing runs."""
        return self._limits.pauses(record)

    @property
    def ready(self) -> int:
        """How many records could run now; some may turn out to have to wait for a limit."""
        return len(self._ready) + self._limits.placed

    @property
    def is_limited(self) -> bool:
        """Whether a record that is ready may have to wait for others that are like it."""
        return self._is_limited

    @property
    def waiting(self) -> dict[str, int]:
        """How many records wait for a limit, by its name."""
        return self._limits.waiting

    def _free(self, key: bytes | None) -> None:
        if key is None:
            return
        busy = self._busy[key] - 1
        behind = self._behind.get(key)
        if behind is not None and busy < self._per_key:
            self._ready.append(behind.popleft())
            if not behind:
                del self._behind[key]
        elif busy:
            self._busy[key] = busy
        else:
            del self._busy[key]

    def _stop(self, record: Record) -> None:
        """A taken record runs no more."""
        if self._is_limited:
            self._limits.leave(record)


def _part(unwanted: Callable[[Record], bool], records: deque[Record]) -> tuple[list[Record], deque[Record]]:
    """Those that are unwanted, and the others; both in order."""
    return [one for one in records if unwanted(one)], deque(one for one in records if not unwanted(one))
