"""Stands for `confluent_kafka.Consumer` on the simulated log: its calls, its callbacks, and what it does by itself."""

from collections import deque
from collections.abc import Callable
from typing import Any

from confluent_kafka import KafkaError, KafkaException, TopicPartition

from simulation.baton import Process
from simulation.faults import Answer
from simulation.fetching import Fetching
from simulation.group import SESSION_SECONDS, Committed, Seat, Told
from simulation.log import Place
from simulation.message import SimMessage
from simulation.world import World

POLL_GAP = 12.0  # seconds without a poll after which something must have stopped the polling thread


class SimConsumer(Fetching):
    """One member's client. Its methods belong to the process's polling thread; `tell` and `cut` to the world.

    Args:
        world: log, coordinator, faults, laws.
        process: whose it is.
        config: librdkafka's properties; `on_commit` is used.
    """

    def __init__(self, world: World, process: Process, config: dict[str, Any]) -> None:
        super().__init__(world, process.name)
        self.topics: list[str] = []
        self.is_cut = False
        self.ending: frozenset[Place] = frozenset()  # what the callback that runs is about
        self.is_lost = False  # while that is `on_lost`
        self._process = process
        self._on_commit: Callable[..., None] = config["on_commit"]
        self._seat: Seat | None = None
        self._told: deque[Told] = deque()
        self._held: list[Told] = []
        self._answers: deque[tuple[KafkaError | None, list[TopicPartition]]] = deque()
        self._lands = 0.0  # when the last request on its way reaches the coordinator: they keep their order
        self._polled = self._baton.now
        self._closing = False
        world.consumers.append(self)

    # --- as the client

    def subscribe(self, topics: list[str], **callbacks: Callable[..., None]) -> None:
        self._baton.step()
        self.topics = list(topics)
        self._callbacks = callbacks
        self._seat = self._world.coordinator.join(self)

    def unsubscribe(self) -> None:
        """No answer of the coordinator is lost here: nobody has a reason to join anew."""
        raise NotImplementedError

    def poll(self, timeout: float) -> SimMessage | None:
        self._enter()
        self._serve()
        if (found := self._next()) is None and timeout > 0:
            self._baton.pause(timeout)
            self._serve()
            found = self._next()
        return found

    def consume(self, count: int, timeout: float) -> list[SimMessage]:
        self._enter()
        self._serve()
        found: list[SimMessage] = []
        while len(found) < count and (message := self._next()) is not None:
            found.append(message)
        if not found and timeout > 0:
            self._baton.pause(timeout)
        return found

    def commit(self, *, offsets: list[TopicPartition], asynchronous: bool) -> list[TopicPartition] | None:
        places = {(one.topic, one.partition): (one.offset, one.metadata or "") for one in offsets}
        self._world.laws.asks_to_commit(self, list(places))
        seat = self._seat
        if not asynchronous:
            self._baton.step()
            self._baton.pause(max(0.0, self._lands - self._baton.now))
            if (error := self._stored(seat, places)) is not None:
                raise KafkaException(error)
            return offsets

        def land() -> None:
            if self._process.dead and self._baton.dice.random() < 0.5:
                return  # it never left the process
            error = self._stored(seat, places)
            wait = 2.0 if self.is_cut else self._baton.hop()
            self._baton.after(wait, lambda: self._answers.append((error, offsets)))

        self._lands = max(self._lands, self._baton.now + self._baton.hop())
        self._baton.after(self._lands - self._baton.now, land)
        return None

    def consumer_group_metadata(self) -> tuple[int, int]:
        return (self._seat.number, self._seat.epoch) if self._seat is not None else (0, 0)

    def memberid(self) -> str:
        return self.name if self._seat is not None else ""

    def close(self) -> None:
        self._enter()
        self._serve()
        self._closing = True
        if self.assigned:
            self._rebalance(("revoke", sorted(self.assigned)))
        self._baton.pause(max(0.0, self._lands - self._baton.now))
        self._leave()

    # --- for the world

    def tell(self, told: Told) -> None:
        """Have the next poll serve a rebalance event."""
        (self._held if self.is_cut else self._told).append(told)

    def cut(self, seconds: float) -> None:
        """Let nothing pass between this client and the coordinator for so long; fetching goes on."""
        self.is_cut = True
        self._baton.after(SESSION_SECONDS, self._expire)
        self._baton.after(seconds, self._heal)

    def die(self) -> None:
        """It says no more, not even that it leaves: after the session's time the coordinator notices."""
        seat = self._seat
        if seat is not None:
            self._baton.after(SESSION_SECONDS, lambda: self._world.coordinator.leave(seat, "is put out: no heartbeat"))

    # --- inside

    def _expire(self) -> None:
        if self.is_cut and self._seat is not None and self._world.coordinator.knows(self._seat):
            self._world.coordinator.leave(self._seat, "is put out: no heartbeat")
            if self._baton.dice.random() < 0.5:  # it finds out by its own clock, or by the coordinator's refusal
                self._told.append(("lost", sorted(self.assigned)))

    def _heal(self) -> None:
        self.is_cut = False
        if self._seat is not None and self._world.coordinator.knows(self._seat):
            self._told += self._held
        elif self._seat is not None and not any(kind == "lost" for kind, _ in self._told):
            self._told.clear()
            self._told.append(("lost", sorted(self.assigned)))
        self._held.clear()

    def _leave(self) -> None:
        if self.is_cut:
            self.die()
        elif self._seat is not None:
            self._world.coordinator.leave(self._seat)
        self._seat = None

    def _enter(self) -> None:
        self._baton.step()
        self._look_at_gap()

    def _look_at_gap(self) -> None:
        gap = self._baton.now - self._polled
        self._polled = self._baton.now
        if gap > POLL_GAP:
            self._baton.fail(f"{self.name} did not poll for {gap:.1f} s")

    def _serve(self) -> None:
        while self._answers:
            self._on_commit(*self._answers.popleft())
        if self._seat is None and not self._closing and not self.is_cut and self.topics:
            self._seat = self._world.coordinator.join(self)
        while self._told:
            self._rebalance(self._told.popleft())

    def _rebalance(self, told: Told) -> None:
        kind, places = told
        self._look_at_gap()  # one poll may serve several events, each within its bound
        shown = [TopicPartition(*place) for place in places]
        self._say(f"serves {kind}", shown)
        seat, coordinator = self._seat, self._world.coordinator
        if kind == "assign":
            self._assigning = False
            self._callbacks["on_assign"](self, shown)
            if not self._assigning:  # what the client does by itself when the callback did not
                begin = [TopicPartition(*place, coordinator.committed.get(place, (0, ""))[0]) for place in places]
                self.incremental_assign(begin)
            if seat is not None:
                coordinator.served(seat, told)
            return
        if kind == "lost":
            self._told.clear()
            self._seat = None
        self.ending, self.is_lost = frozenset(places), kind == "lost"
        self._callbacks[f"on_{kind}"](self, shown)
        for place in places:
            self.assigned.pop(place, None)
        self.ending, self.is_lost = frozenset(), False
        if seat is not None and kind == "revoke":
            wait = max(0.0, self._lands - self._baton.now)
            self._baton.after(wait, lambda: coordinator.served(seat, told))

    def _stored(self, seat: Seat | None, places: dict[Place, Committed]) -> KafkaError | None:
        """Have the coordinator store offsets, as far as the faults let it."""
        if seat is None:
            return KafkaError(KafkaError.UNKNOWN_MEMBER_ID)
        shown = " ".join(f"{topic}/{number}={offset}" for (topic, number), (offset, _) in places.items())
        answer = Answer.LOST if self.is_cut else self._world.faults.answer("commit")
        error = None if answer is Answer.LOST else self._world.coordinator.commit(seat, places)
        if error is None and answer is not Answer.OK:
            error = KafkaError(KafkaError._TIMED_OUT)
        told = {Answer.LOST: "lost", Answer.UNCLEAR: "stored, the answer lost"}.get(answer, "stored")
        self._baton.say(f"commit of {self.name} {error.name() if error and answer is Answer.OK else told}: {shown}")
        return error
