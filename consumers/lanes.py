"""Key lanes: records of one key run one after the other, records of different keys at once."""

from collections import deque

from offsetzero.consumers.record import Record


class KeyLanes:
    """Pure: no locks, no threads. A lane exists while its key has a record that runs or waits in it."""

    def __init__(self) -> None:
        self._lanes: dict[bytes, deque[Record]] = {}
        self._ready: deque[Record] = deque()

    def add(self, record: Record) -> None:
        """Queue a record behind those of its key. A record without a key has no order, and is ready at once."""
        if record.key is None:
            self._ready.append(record)
            return
        lane = self._lanes.get(record.key)
        if lane is None:
            self._lanes[record.key] = deque()
            self._ready.append(record)
        else:
            lane.append(record)

    def take(self) -> Record | None:
        """The next record that may run now; its lane is busy until `finish`."""
        return self._ready.popleft() if self._ready else None

    def again(self, record: Record) -> None:
        """Make a taken record ready once more, before everything else of its key."""
        self._ready.append(record)

    def finish(self, record: Record) -> None:
        """Free the lane of a taken record: the next one of its key becomes ready."""
        if record.key is None:
            return
        lane = self._lanes[record.key]
        if lane:
            self._ready.append(lane.popleft())
        else:
            del self._lanes[record.key]

    def purge(self) -> list[Record]:
        """Take out what waits behind a taken or ready record and was revoked; `take` meets the ready ones."""
        gone: list[Record] = []
        for lane in self._lanes.values():
            if any(not record.owned.active for record in lane):
                gone += [record for record in lane if not record.owned.active]
                kept = [record for record in lane if record.owned.active]
                lane.clear()
                lane.extend(kept)
        return gone

    @property
    def ready(self) -> int:
        """How many records could run now."""
        return len(self._ready)
