"""What must hold, whatever happens; each is looked at where it could be broken, or once all is quiet."""

from __future__ import annotations

from collections import Counter, defaultdict
from typing import TYPE_CHECKING

from offsetzero.consumers.working.database import MAX_CRASHES
from offsetzero.topics.catalogue import is_bulk
from simulation.log import header
from simulation.plan import Effects, Kind, Published
from simulation.world import DEAD, OUTPUT, RETRIES, SOURCES

MAX_KILLED = MAX_CRASHES + 4
"""By one event: the first of them shows nothing, and a slow old owner or two may have begun with it like that one."""

if TYPE_CHECKING:
    from simulation.baton import Process
    from simulation.consumer import SimConsumer
    from simulation.log import Place, Stored
    from simulation.world import World


class Laws:
    """The laws of one run."""

    def __init__(self, world: World) -> None:
        self._world = world
        self._events = world.plan.by_id
        self._copies: dict[str, list[Stored]] = defaultdict(list)  # by event: those in retry and dead-letter topics
        self._checked: dict[Place, int] = defaultdict(int)  # offsets below which all records were found done
        self._ended: dict[str, str] = {}  # the outcomes of events, once they are safe
        self._redriven: dict[str, int] = {}  # of those that were redriven: for how manieth time they have ended
        # What operators have done to events: the outcomes that may follow, by redrive number. After a forced replay an
        # event may have two dead letters: the one that is read first decides.
        self._operated: dict[str, dict[int, set[str]]] = defaultdict(lambda: defaultdict(set))
        self._open = dict.fromkeys(self._events)  # those that have not ended as they shall
        self._effects: set[str] = set()
        self._replays: dict[Place, set[int]] = defaultdict(set)  # offsets that partitions may go back to
        self._gone_back: dict[Place, set[int]] = defaultdict(set)  # those that were committed since
        self._repeated: set[str] = set()  # events that were replayed, so that they may have more than one effect
        self._again: set[str] = set()  # those that must have another one
        self._forced: dict[str, list[tuple[Place, int, int]]] = defaultdict(list)  # by event: place, offset, generation
        self._owed: set[tuple[str, int]] = set()  # events, and the generations in which they must have ended
        self._counts: dict[str, int] = defaultdict(int)  # effects of events
        self._last: dict[bytes, int] = {}  # by key: the position among all events of its last effect
        self._dead: set[str] = set()
        self._killed: dict[str, int] = defaultdict(int)  # by event: processes
        self._handling: dict[tuple[str, bytes], str] = {}
        self._alike: Counter[tuple[str, object]] = Counter()  # of a process: handlers at work, by what is limited
        self._order = {one.event_id: at for at, one in enumerate(world.plan.events)}
        troubled = (Kind.FAILS, Kind.BUG, Kind.HANGS)
        self._retried = {one.key for one in world.plan.events if one.behaviour.kind in troubled}
        if world.plan.hold:
            dead = (Kind.POISON, Kind.KILLS)
            self._retried |= {one.key for one in world.plan.events if one.behaviour.kind in dead}
        self._given_up = {one.key for one in world.plan.events if one.behaviour.kind is Kind.HANGS}
        self._unordered = set(self._retried) if world.plan.effects is Effects.TRANSACTION else set()

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
        before = self._committed(place)
        if offset in self._replays[place]:
            self._gone_back[place].add(offset)
        if offset < before:
            if offset not in self._replays[place]:
                self._fail(f"{member} commits {_shown(place)} back to {offset}")
            self._go_back(place, offset, before)
        partition = self._world.log[place]
        if offset > partition.end:
            self._fail(f"{member} commits {_shown(place)} at {offset}, past its end {partition.end}")
        index = partition.index(self._checked[place])
        while index < len(partition.records) and (record := partition.records[index]).offset < offset:
            if not self._is_done(record):
                self._fail(f"{member} commits {_shown(place)} at {offset}, past {record}, which is not done")
            index += 1
        self._checked[place] = max(self._checked[place], offset)

    def replays(self, place: Place, offset: int) -> None:
        """Somebody asks for a replay."""
        self._replays[place].add(offset)

    def has_replayed(self, place: Place, offset: int | None) -> None:
        """A member says that it reads from there, and that the broker knows."""
        if offset not in self._gone_back[place]:
            self._fail(f"a replay of {_shown(place)} from {offset} is said to be applied, and was not committed")

    def forces(self, place: Place, first: int, end: int, generation: int) -> None:
        """A generation is opened in which these records are to be handled again, once somebody goes back to them."""
        partition = self._world.log[place]
        for record in partition.records[partition.index(first) : partition.index(end)]:
            self._forced[record.event_id].append((place, record.offset, generation))

    def prevents(self, generation: int) -> None:
        """Whoever has opened a generation is told that nothing is read again for it.

        Another replay of the partition may be what it goes back for, begun before there was that generation.
        """
        self._owed = {one for one in self._owed if one[1] != generation}

    def _go_back(self, place: Place, offset: int, before: int) -> None:
        """What lies between is to be handled again, where no outcome in the database says that it is done."""
        partition = self._world.log[place]
        between = partition.records[partition.index(offset) : partition.index(before)]
        if self._world.plan.effects is Effects.DATABASE:
            for record in between:
                opened = [number for *where, number in self._forced[record.event_id] if where == [place, record.offset]]
                self._owed |= {(record.event_id, max(opened))} if opened else set()
            return
        for record in between:
            self._repeated.add(record.event_id)
            if record.event_id in self._effects:
                self._again.add(record.event_id)
                self._open[record.event_id] = None

    def _committed(self, place: Place) -> int:
        return self._world.coordinator.committed.get(place, (0, ""))[0]

    def _is_done(self, record: Stored) -> bool:
        """Its outcome is in the database, or a later copy is in the log; of equal ones, one that is not committed."""
        if record.event_id in self._ended and self._redriven.get(record.event_id, 0) >= _version(record)[0]:
            return True
        return any(
            _version(other) > _version(record)
            or (other is not record and _version(other) == _version(record) and self._is_waiting(other))
            for other in self._copies[record.event_id]
        )

    def _is_waiting(self, record: Stored) -> bool:
        return record.offset >= self._committed((record.topic, record.partition))

    # --- effects

    def begins(self, process: Process) -> None:
        """A thread asks for a connection: between its look at the ownership and this, no other thread could run."""
        consumer = self._world.consumer_of(process)
        owned = consumer.assigned.keys() - consumer.ending if consumer is not None else ()
        self._world.baton.current.owned = frozenset(number for _, number in owned)

    def handles(self, process: Process, event_id: str) -> None:
        """A handler begins: its member owned the partition when it was taken; nothing else of the key is in work."""
        event = self._events[event_id]
        plan = self._world.plan
        if plan.effects is not Effects.DATABASE and not plan.batch:
            self.begins(process)
        is_known = not plan.preempt and (plan.effects is Effects.DATABASE or not plan.batch)
        if is_known and event.partition not in self._world.baton.current.owned:
            self._fail(f"{process.name} handles {event_id} of a partition that it has lost")
        if plan.timeout is None:  # what was given up may still be at work
            for what, most in self._limited(event):
                self._alike[process.name, what] += 1
                if most is not None and self._alike[process.name, what] > most:
                    self._fail(f"{process.name} handles more than {most} of {what!r} at once")
        if event.key is None or event.key in self._unordered or event.key in self._given_up:
            return  # what was given up may still be at work, without effect
        if (other := self._handling.setdefault((process.name, event.key), event_id)) != event_id:
            self._fail(f"{process.name} handles {event_id} of {event.key!r} while {other} is in work")

    def handled(self, process: Process, event_id: str) -> None:
        """The handler has returned, or raised."""
        key = self._events[event_id].key
        if self._world.plan.timeout is None:
            self._alike.subtract((process.name, what) for what, _ in self._limited(self._events[event_id]))
        if key is not None and self._handling.get((process.name, key)) == event_id:
            del self._handling[process.name, key]

    def _limited(self, event: Published) -> list[tuple[object, int | None]]:
        """What of an event is limited in number, and to how many."""
        plan = self._world.plan
        return [(event.tenant, plan.per_tenant), (event.topic, plan.in_bulk if is_bulk(event.topic) else None)]

    def kills(self, process: Process, event_id: str) -> None:
        """A handler ends its process: no event may do so for ever."""
        self._killed[event_id] += 1
        if self._killed[event_id] > MAX_KILLED * (1 + len(self._forced[event_id])):
            self._fail(f"{process.name} is the {self._killed[event_id]}th process that {event_id} has killed")

    def effect(self, event_id: str) -> None:
        """An effect is safe: the only one of its event, after those before it of its key."""
        event = self._events[event_id]
        self._counts[event_id] += 1
        if event_id in self._effects:
            # There it may be repeated after a crash.
            is_again = event_id in self._repeated or self._counts[event_id] <= 1 + len(self._forced[event_id])
            if self._world.plan.effects is not Effects.LOG and not is_again:
                self._fail(f"a second effect of {event_id}")
            self._again.discard(event_id)
            self._look_at_end(event_id)
            return
        self._effects.add(event_id)
        plan = self._world.plan
        if plan.batch and plan.effects is Effects.LOG:
            return  # of outputs that were sent together some may be lost, and sent again after the others
        if event.key is None or event.key in self._unordered:
            return
        if plan.hold:
            self._look_at_holds(event)
        elif event_id in self._operated:
            return  # the others have gone on meanwhile
        at, last = self._order[event_id], self._last.get(event.key, -1)
        if at < last:
            self._fail(f"effect of {event_id} after one of e{last}: key {event.key!r} is out of order")
        self._last[event.key] = at

    def _look_at_holds(self, event: Published) -> None:
        """No effect comes behind a dead letter of its key that an operator has not seen to."""
        for other in self._world.plan.events[: self._order[event.event_id]]:
            if other.key == event.key and self._ended.get(other.event_id) == "dead-lettered":
                self._fail(f"effect of {event.event_id}, though key {event.key!r} is held for {other.event_id}")

    def ends(self, event_id: str, outcome: str, redrive_no: int = 0) -> None:
        """The outcome of an event is safe."""
        if redrive_no >= self._redriven.get(event_id, 0):
            self._ended[event_id] = outcome
            self._redriven[event_id] = redrive_no
            self._look_at_end(event_id)

    def _look_at_end(self, event_id: str) -> None:
        """Whether it has ended as it shall."""
        outcome = self._ended.get(event_id)
        waits = outcome is None or (self._world.plan.hold and outcome == "dead-lettered") or event_id in self._again
        if outcome in self._may_end(event_id, outcome) and not waits:
            self._open.pop(event_id, None)
        else:
            self._open[event_id] = None

    def operates(self, record: Stored, outcome: str) -> None:
        """An operator sends a dead letter back."""
        self._operated[record.event_id][_version(record)[0]].add(outcome)
        self._look_at_end(record.event_id)
        self._copies[record.event_id].append(record)
        self._retried.add(self._events[record.event_id].key)

    def _may_end(self, event_id: str, unoperated: str | None) -> set[str | None]:
        sent = self._operated.get(event_id)
        return {*sent[max(sent)]} if sent else {unoperated}

    # --- copies

    def appends(self, process: Process, record: Stored) -> None:
        """A member appends a copy: of an event that has failed, and whose partition it owns."""
        if record.topic == OUTPUT:
            return
        event, reason = self._events[record.event_id], header(record.headers, "oz_reason")
        what = f"{process.name} appends {record.event_id} to {record.topic}/{record.partition}"
        if not reason:
            self._parks(event, record, what)
        elif event.behaviour.kind in (Kind.FINE, Kind.TOMBSTONE):
            self._fail(f"{what} for {reason}, though it never fails")
        if record.topic == DEAD and event.behaviour.expected != "dead-lettered":
            self._fail(f"{what} for {reason}, which {event.behaviour}")
        consumer = self._world.consumer_of(process)
        owns = consumer is not None and any(number == record.partition for _, number in consumer.assigned)
        # In transactions the group refuses the offsets; held up at any line, a worker looks, and then loses it. What is
        # parked is appended by the polling thread, which nobody takes a partition from but itself.
        may_lose = self._world.plan.effects is Effects.TRANSACTION or self._world.plan.preempt
        if not owns and not (reason and may_lose):
            self._fail(f"{what}, having lost the partition")

    def _parks(self, event: Published, record: Stored, what: str) -> None:
        """What has not failed is appended once, because an earlier event of its key has."""
        if record.topic != RETRIES[0] or _version(record)[1:] != (1, 0) or header(record.headers, "oz_attempt") != "1":
            self._fail(f"{what}, which nobody parks so")
        if event.key is None or event.key not in self._retried:
            self._fail(f"{what} to park it, though no event of its key {event.key!r} is retried")

    def landed(self, record: Stored) -> None:
        """What a member has appended is in the log."""
        if record.topic == OUTPUT:
            event_id = header(record.headers, "ce_causationid")
            self.effect(event_id)
            self.ends(event_id, "applied")
            return
        self._copies[record.event_id].append(record)
        if record.topic == DEAD:
            self._dead.add(record.event_id)
            if self._world.plan.effects is not Effects.DATABASE:
                self.ends(record.event_id, "dead-lettered")

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
        return missing + [f"{one} is {self._ended.get(one, 'without an outcome')}" for one in self._open]

    def look_at_outcomes(self) -> None:
        """Each event ended as it had to; what was applied had its effect, what was dead-lettered lies there."""
        for event in self._world.plan.events:
            event_id, outcome = event.event_id, self._ended.get(event.event_id)
            if outcome not in self._may_end(event_id, event.behaviour.expected):
                self._fail(f"{event_id} ({event.behaviour}) ended as {outcome}")
            if (event_id in self._effects) != (outcome == "applied"):
                state = "there" if event_id in self._effects else "missing"
                self._fail(f"{event_id} ended as {outcome}, its effect is {state}")
            if outcome == "dead-lettered" and event_id not in self._dead:
                self._fail(f"{event_id} ended as dead-lettered and lies in no dead-letter topic")
        if self._world.plan.effects is Effects.DATABASE:
            self._look_at_generations()

    def _look_at_generations(self) -> None:
        """What was forced is done in its generation or a later one; there are as many effects as outcomes say."""
        applied: dict[str, int] = defaultdict(int)
        ended: dict[str, int] = defaultdict(int)  # the last generation
        for (_, generation, _, event_id, _), outcome in self._world.database.outcomes.items():
            applied[event_id] += outcome == "applied"
            ended[event_id] = max(ended[event_id], generation)
        for event_id, generation in sorted(self._owed):
            if ended[event_id] < generation:
                self._fail(f"{event_id} has no outcome in generation {generation}, which it was forced to have")
        for event_id, count in applied.items():
            if self._counts[event_id] != count:
                self._fail(f"{event_id} has {self._counts[event_id]} effects and was applied {count} times")

    def _fail(self, text: str) -> None:
        self._world.baton.fail(text)


def _shown(place: Place) -> str:
    return f"{place[0]}/{place[1]}"


def _version(record: Stored) -> tuple[int, ...]:
    """Which copy of its event it is."""
    return tuple(int(header(record.headers, name) or 0) for name in ("oz_redrive_no", "oz_hop", "oz_due"))
