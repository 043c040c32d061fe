"""How many records that are alike may run at once: of one tenant, of the lane for backfill. Pure: no locks, no threads.

A record that would be one too many waits here, in memory, and holds up none of another kind. What has a place, because
one of its kind has ended, is handed out before what has asked for none yet.
"""

from collections import deque
from collections.abc import Callable, Sequence
from typing import TypeAlias

from offsetzero.consumers.record import Record

Kind: TypeAlias = tuple[bytes | None, ...]
"""What a record counts as, by limit; None for what it does not count towards."""


class Limit:
    """One limit.

    Args:
        name: shown by metrics.
        most: records of one kind that may run at once.
        of: what a record counts as, None for nothing. It must say the same of a record until that has ended.
    """

    def __init__(self, name: str, most: int, of: Callable[[Record], bytes | None]) -> None:
        self.name = name
        self.most = most
        self.of = of
        self.running: dict[bytes, int] = {}
        self.kinds: dict[bytes, dict[Kind, None]] = {}
        """Of what a record counts as: the kinds of those that wait, in the order of their turns."""


class Limits:
    """All limits of a group.

    Args:
        limits: each of another name; those that more kinds share come last, so that these take turns.
    """

    def __init__(self, limits: Sequence[Limit]) -> None:
        self._limits = tuple(limits)
        self._only = limits[0].of if len(limits) == 1 else None
        self._waiting: dict[Kind, deque[Record]] = {}  # never an empty one
        self._placed: deque[Record] = deque()  # they count as running

    @property
    def placed(self) -> int:
        """Records that have waited, and have a place."""
        return len(self._placed)

    @property
    def waiting(self) -> dict[str, int]:
        """How many wait, by the name of the first limit that they meet."""
        found = dict.fromkeys((limit.name for limit in self._limits), 0)
        for kind, records in self._waiting.items():
            found[self._limits[self._full(kind) or 0].name] += len(records)
        return found

    def most(self, name: str) -> int | None:
        """How many of one kind a limit lets run at once; None when there is none of this name."""
        return next((limit.most for limit in self._limits if limit.name == name), None)

    def pauses(self, record: Record) -> bool:
        """Whether nothing like this record may begin, also when nothing runs."""
        return any(not limit.most and limit.of(record) is not None for limit in self._limits)

    def resize(self, name: str, most: int) -> None:
        """Let so many of one kind run at once from now on, 0 for none for a while. What runs goes on."""
        for limit in self._limits:
            if limit.name == name:
                limit.most = most
                for kind in list(limit.kinds):
                    while kind in limit.kinds and self._place_one(limit, kind):
                        pass

    def admit(self, record: Record) -> bool:
        """Give a record a place, or have it wait."""
        if (kind := self._kind(record)) is None:
            return True
        if self._full(kind) is None:
            self._count(kind)
            return True
        if (waiting := self._waiting.get(kind)) is not None:
            waiting.append(record)
            return False
        self._waiting[kind] = deque((record,))
        for limit, name in zip(self._limits, kind, strict=True):
            if name is not None:
                limit.kinds.setdefault(name, {})[kind] = None
        return False

    def take(self) -> Record | None:
        """The next one that has waited and has a place."""
        return self._placed.popleft() if self._placed else None

    def leave(self, record: Record) -> None:
        """A record that had a place runs no more: it is the turn of one that waits."""
        if (kind := self._kind(record)) is None:
            return
        for limit, name in zip(self._limits, kind, strict=True):
            if name is None:
                continue
            if running := limit.running[name] - 1:
                limit.running[name] = running
            else:
                del limit.running[name]
        for limit, name in zip(reversed(self._limits), reversed(kind), strict=True):
            if name is not None and limit.kinds.get(name):
                self._place_one(limit, name)

    def purge(self, unwanted: Callable[[Record], bool]) -> list[Record]:
        """Take out what waits, or has a place and was not handed out, and is unwanted."""
        gone: list[Record] = []
        for kind, records in list(self._waiting.items()):
            if out := [record for record in records if unwanted(record)]:
                gone += out
                self._waiting[kind] = deque(record for record in records if not unwanted(record))
                if not self._waiting[kind]:
                    self._forget(kind)
        if out := [record for record in self._placed if unwanted(record)]:
            self._placed = deque(record for record in self._placed if not unwanted(record))
            gone += out
            for record in out:
                self.leave(record)
        return gone

    # ---

    def _kind(self, record: Record) -> Kind | None:
        """None for what counts towards nothing: most of what a group has that limits its bulk topic alone."""
        if self._only is not None:
            return None if (name := self._only(record)) is None else (name,)
        return tuple([limit.of(record) for limit in self._limits])

    def _full(self, kind: Kind) -> int | None:
        """The first limit that has no room for a kind."""
        for at, name in enumerate(kind):
            if name is not None and self._limits[at].running.get(name, 0) >= self._limits[at].most:
                return at
        return None

    def _count(self, kind: Kind) -> None:
        for limit, name in zip(self._limits, kind, strict=True):
            if name is not None:
                limit.running[name] = limit.running.get(name, 0) + 1

    def _place_one(self, limit: Limit, name: bytes) -> bool:
        """Of the kinds that wait for this limit, the first that no other one holds up; it goes to the end then."""
        kinds = limit.kinds[name]
        kind = next((one for one in kinds if self._full(one) is None), None)
        if kind is None:
            return False
        self._placed.append(self._waiting[kind].popleft())
        self._count(kind)
        if not self._waiting[kind]:
            self._forget(kind)
        else:
            del kinds[kind]
            kinds[kind] = None
        return True

    def _forget(self, kind: Kind) -> None:
        del self._waiting[kind]
        for limit, name in zip(self._limits, kind, strict=True):
            if name is not None:
                del limit.kinds[name][kind]
                if not limit.kinds[name]:
                    del limit.kinds[name]
