"""Stands for the topic `control`, and for who asks for replays by it."""

from __future__ import annotations

import functools
from datetime import timedelta
from typing import TYPE_CHECKING
from uuid import UUID

from offsetzero.schemas.control import GroupReplayAnswered, GroupReplayRequested, ReplayOutcome, ReplayPlace
from offsetzero.schemas.event import Event
from simulation.clock import START

if TYPE_CHECKING:
    from simulation.baton import Process
    from simulation.log import Place
    from simulation.world import World

AGAIN_SECONDS = 1.0


class Control:
    """What was said, in its order, and who replays.

    Args:
        world: where it is said.
    """

    def __init__(self, world: World) -> None:
        self.said: list[Event] = []
        self._world = world
        self._requests = 0
        self._generations: dict[UUID, int] = {}

    def replay(self, place: Place, offset: int, seconds: float, generation: int | None = None) -> None:
        """Ask the members to read a partition from an offset, again and again until there is an answer.

        Args:
            place: the partition.
            offset: there.
            seconds: for which it is asked.
            generation: that was opened for it, where what is done is to be done again.
        """
        self._requests += 1
        number = UUID(int=self._requests)
        if generation is not None:
            self._generations[number] = generation
        now = self._world.baton.now
        where = ReplayPlace(topic=place[0], topic_id=f"id-of-{place[0]}", partition=place[1], offset=offset)
        deadline = START + timedelta(seconds=now + seconds)
        request = GroupReplayRequested(group="audit", request_id=number, deadline=deadline, places=[where])
        self._world.laws.replays(place, offset)
        self._ask(request, now + seconds)

    def answer(self, answer: GroupReplayAnswered) -> None:
        """A member has answered."""
        self.said.append(answer)
        place = answer.topic, answer.partition
        self._world.baton.say(f"replay of {place[0]}/{place[1]}: {answer.outcome.value} {answer.detail}")
        if answer.outcome is ReplayOutcome.APPLIED:
            self._world.laws.has_replayed(place, answer.offset)
        elif answer.outcome is ReplayOutcome.PREVENTED and answer.request_id in self._generations:
            self._world.laws.prevents(self._generations[answer.request_id])

    def _ask(self, request: GroupReplayRequested, until: float) -> None:
        baton = self._world.baton
        over = any(
            isinstance(one, GroupReplayAnswered)
            and one.request_id == request.request_id
            and one.outcome is not ReplayOutcome.LOST_PARTITION
            for one in self.said
        )
        if over or baton.now > until or self._world.faults.calm:
            return
        self.said.append(request)
        baton.after(AGAIN_SECONDS, functools.partial(self._ask, request, until))


class SimChannel:
    """One member's; see `Channel`."""

    def __init__(self, world: World, process: Process) -> None:
        self._world = world
        self._process = process
        self._read = len(world.control.said)

    def news(self) -> list[Event]:
        said = self._world.control.said
        if self._read == len(said):
            return []
        self._world.baton.step()
        found = said[self._read :]
        self._read += len(found)
        return found

    def answer(self, answer: GroupReplayAnswered) -> None:
        self._world.baton.step()
        control = self._world.control
        self._world.baton.after(self._world.baton.hop(), lambda: control.answer(answer))

    def close(self) -> None:
        pass
