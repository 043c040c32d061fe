"""What must hold, whatever happens; each is looked at where it could be broken, or once all is quiet."""

from __future__ import annotations

import gc
from collections import defaultdict
from typing import TYPE_CHECKING

from offsetzero.consumers.record import OVERHEAD
from simulation.plan import Kind, Published
from simulation.world import DEAD, RETRIES, SOURCES

if TYPE_CHECKING:
    from simulation.baton import Process
    from simulation.consumer import SimConsumer
    from simulation.log import Headers, Place, Stored
    from simulation.world import World

MAX_BYTES = 40_000  # in flight, as the members are configured
RECORD_BYTES = OVERHEAD + 700
SPARE_RECORDS = 8  # paused partitions still give one a poll while they are assigned anew


class Held:
    """What the runtime of one member holds of a kind of topics."""

    def __init__(self) -> None:
        self.records = 0
        self.bytes = 0


class Payload(bytes):
    """A record's value that counts as held until the last reference to it is gone."""

    held: Held

    def __del__(self) -> None:
        self.held.records -= 1
        self.held.bytes -= len(self) + OVERHEAD


class Laws:
    """The laws of one run."""

    def __init__(self, world: World) -> None:
        self._world = world
        self._events: dict[str, Published] = {one.event_id: one for one in world.plan.events}
        self._held: dict[tuple[str, bool], Held] = defaultdict(Held)
        self._hops: dict[str, int] = {}  # by event: the highest hop of its copies in retry and dead-letter topics
        self._checked: dict[Place, int] = defaultdict(int)  # offsets below which all records were found done
        self._effects: set[str] = set()
        self._last: dict[bytes, int] = {}  # by key: the position among all events of its last effect
        self._dead: set[str] = set()
        self._handling: dict[tuple[str, bytes], str] = {}
        self._order = {one.event_id: at for at, one in enumerate(world.plan.events)}
        troubled = (Kind.FAILS, Kind.BUG, Kind.HANGS)
        self._retried = {one.key for one in world.plan.events if one.behaviour.kind in troubled}

    # --- memory

    def hold(self, member: str, record: Stored) -> bytes | None:
        """The value to hand to a member; memory must stay bounded, in records and bytes."""
        if record.value is None:
            return None
        waits = record.topic in RETRIES
        held = self._held[member, waits]
        payload = Payload(record.value)
        payload.held = held
        held.records += 1
        held.bytes += len(payload) + OVERHEAD
        plan = self._world.plan
        limit = plan.max_in_flight * (4 if plan.timeout else 1)  # a handler that was given up keeps what it was given
        most_bytes = MAX_BYTES + limit * RECORD_BYTES  # the limit is looked at between two fetches
        most = most_bytes // OVERHEAD if waits else limit + SPARE_RECORDS
        if held.records > most or held.bytes > most_bytes:
            gc.collect()  # failures with their tracebacks refer to each other
            if held.records > most or held.bytes > most_bytes:
                self._fail(f"{member} holds {held.records} records, {held.bytes} bytes in memory")
        return payload

    # --- commits

    def asks_to_commit(self, consumer: SimConsumer, places: list[Place]) -> None:
        """A member commits only what it owns, as far as it knows."""
        for place in places:
            if place not in consumer.assigned or consumer.is_lost:
                self._fail(f"{consumer.name} commits {_shown(place)}, which it has lost")

    def commits(self, place: Place, offset: int, member: str, owner: str | None) -> None:
        """The coordinator is about to store an offset: by the owner, never back, never past an undone record."""
        if member != owner:
            self._fail(f"{member} commits {_shown(place)}, which {owner or 'nobody'} owns")
        if offset < self._committed(place):
            self._fail(f"{member} commits {_shown(place)} back to {offset}")
        partition = self._world.log[place]
        if offset > partition.end:
            self._fail(f"{member} commits {_shown(place)} at {offset}, past its end {partition.end}")
        index = partition.index(self._checked[place])
        while index < len(partition.records) and (record := partition.records[index]).offset < offset:
            if not self._is_done(record):
                self._fail(f"{member} commits {_shown(place)} at {offset}, past {record}, which is not done")
            index += 1
        self._checked[place] = max(self._checked[place], offset)

    def _committed(self, place: Place) -> int:
        return self._world.coordinator.committed.get(place, (0, ""))[0]

    def _is_done(self, record: Stored) -> bool:
        """Its outcome is in the database, or a copy with a higher hop is in the log."""
        if record.event_id in self._world.database.ended:
            return True
        return self._hops.get(record.event_id, 0) > _hop(record.headers)

    # --- effects

    def begins(self, process: Process) -> None:
        """A thread asks for a connection: between its look at the ownership and this, no other thread could run."""
        consumer = self._world.consumer_of(process)
        owned = consumer.assigned.keys() - consumer.ending if consumer is not None else ()
        self._world.baton.current.owned = frozenset(number for _, number in owned)

    def handles(self, process: Process, event_id: str) -> None:
        """A handler begins: its member owned the partition when it was taken; nothing else of the key is in work."""
        event = self._events[event_id]
        if event.partition not in self._world.baton.current.owned and not self._world.plan.preempt:
            self._fail(f"{process.name} handles {event_id} of a partition that it has lost")
        if event.key is None or event.key in self._retried:
            return
        if (other := self._handling.setdefault((process.name, event.key), event_id)) != event_id:
            self._fail(f"{process.name} handles {event_id} of {event.key!r} while {other} is in work")

    def handled(self, process: Process, event_id: str) -> None:
        """The handler has returned, or raised."""
        key = self._events[event_id].key
        if key is not None and self._handling.get((process.name, key)) == event_id:
            del self._handling[process.name, key]

    def effect(self, event_id: str) -> None:
        """An effect was committed: the only one of its event, after those before it of its key."""
        event = self._events[event_id]
        if event_id in self._effects:
            self._fail(f"a second effect of {event_id}")
        self._effects.add(event_id)
        if event.key is None or event.key in self._retried:
            return
        at, last = self._order[event_id], self._last.get(event.key, -1)
        if at < last:
            self._fail(f"effect of {event_id} after one of e{last}: key {event.key!r} is out of order")
        self._last[event.key] = at

    # --- copies

    def appends(self, process: Process, place: Place, headers: Headers) -> str:
        """A member appends a copy: of an event that has failed, and whose partition it owns."""
        event_id = _header(headers, "ce_id")
        event, reason = self._events[event_id], _header(headers, "oz_reason")
        if event.behaviour.kind in (Kind.FINE, Kind.TOMBSTONE):
            self._fail(f"{process.name} appends {event_id} to {place[0]} for {reason}, though it never fails")
        if place[0] == DEAD and event.behaviour.expected != "dead-lettered":
            self._fail(f"{process.name} dead-letters {event_id} for {reason}, which {event.behaviour}")
        consumer = self._world.consumer_of(process)
        if consumer is None or all(number != place[1] for _, number in consumer.assigned):
            self._fail(f"{process.name} appends {event_id} to {_shown(place)}, having lost the partition")
        return event_id

    def landed(self, record: Stored) -> None:
        """A copy is in the log."""
        self._hops[record.event_id] = max(self._hops.get(record.event_id, 0), _hop(record.headers))
        if record.topic == DEAD:
            self._dead.add(record.event_id)

    # --- at the end

    def undone(self) -> list[str]:
        """What is missing: events without an outcome, partitions that are not committed to their end."""
        world = self._world
        missing = []
        for place in world.log.places([*SOURCES, *RETRIES]):
            committed, end = self._committed(place), world.log[place].end
            if committed != end:
                paused = [one.name for one in world.consumers if place in one.assigned and place in one.paused]
                state = f", paused by {paused[0]}" if paused else ""
                missing.append(f"{_shown(place)} is committed at {committed} of {end}{state}")
        ended = world.database.ended
        missing += [f"{one.event_id} has no outcome" for one in world.plan.events if one.event_id not in ended]
        return missing

    def look_at_outcomes(self) -> None:
        """Each event ended as it had to; what was applied had its effect, what was dead-lettered lies there."""
        for event in self._world.plan.events:
            event_id, outcome = event.event_id, self._world.database.ended.get(event.event_id)
            if outcome != event.behaviour.expected:
                self._fail(f"{event_id} ({event.behaviour}) ended as {outcome}")
            if (event_id in self._effects) != (outcome == "applied"):
                state = "there" if event_id in self._effects else "missing"
                self._fail(f"{event_id} ended as {outcome}, its effect is {state}")
            if outcome == "dead-lettered" and event_id not in self._dead:
                self._fail(f"{event_id} ended as dead-lettered and lies in no dead-letter topic")

    def _fail(self, text: str) -> None:
        self._world.baton.fail(text)


def _shown(place: Place) -> str:
    return f"{place[0]}/{place[1]}"


def _header(headers: Headers, name: str) -> str:
    return next((value.decode() for found, value in headers if found == name and value is not None), "")


def _hop(headers: Headers) -> int:
    return int(_header(headers, "oz_hop") or 0)
