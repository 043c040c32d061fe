"""Replays of partitions that this member has: they are read from elsewhere, and the group does not notice.

A partition number is restarted as a whole, as if it were taken away and assigned again: nothing more of it is begun,
what runs is awaited, its stays end, and others begin, of the sources that are meant at the new place. So what is known
of retries, of held keys and of the order of keys is made anew, and late results find nothing to change. Before the
broker has acknowledged the commit of the new place nothing is handled: a process that dies earlier has done nothing of
the replay, and one that dies later goes on with it.

The polling thread looks at each replay in each of its turns, and never waits for one.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TypeAlias
from uuid import UUID

from offsetzero import logs
from offsetzero.clock import Clock
from offsetzero.consumers.control.channel import Channel
from offsetzero.consumers.reading.membership import Membership
from offsetzero.consumers.reading.pressure import Pressure
from offsetzero.consumers.record import OwnedPartition, PauseReason
from offsetzero.consumers.working.dispatch import Dispatcher
from offsetzero.schemas.control import GroupReplayAnswered, GroupReplayRequested, ReplayOutcome, ReplayPlace

MAX_SHOWN = 3
"""Records at work that an answer names."""
KEEP_SECONDS = 600.0
"""For which answers are kept, should they be asked for again."""
_Key: TypeAlias = tuple[UUID, str, int]  # a request, a topic and a partition

log = logs.get(__name__)


@dataclass(slots=True)
class _Replay:
    """What is under way with the partitions of one number.

    Attributes:
        request_id: who asked for it.
        places: what is asked for and not answered, by topic.
        deadline: monotonic seconds, after which nothing is begun any more.
        stays: those of the number that are to end.
        begun: those that were begun for it, in their places.
    """

    request_id: UUID
    places: dict[str, ReplayPlace]
    deadline: float
    stays: Sequence[OwnedPartition]
    begun: Sequence[OwnedPartition] = ()


class Replays:
    """Belongs to the polling thread.

    A member heeds only what is asked of partitions that it has: who asks does so again until each has an answer, so
    that one which goes to another member meanwhile finds that one.

    Args:
        group: what Kafka knows the group by.
        channel: where requests come from.
        membership: has the partitions.
        dispatcher: knows what runs.
        clock: deadlines.
        member: how the coordinator knows this member.
    """

    def __init__(
        self,
        group: str,
        channel: Channel,
        membership: Membership,
        dispatcher: Dispatcher,
        clock: Clock,
        member: Callable[[], str],
    ) -> None:
        self._group = group
        self._channel = channel
        self._membership = membership
        self._dispatcher = dispatcher
        self._clock = clock
        self._member = member
        self._under_way: dict[int, _Replay] = {}
        self._answers: dict[_Key, tuple[GroupReplayAnswered, float]] = {}  # final ones, anybody's, and since when

    @property
    def is_busy(self) -> bool:
        """Whether something is awaited, so that the polling thread should not sleep long."""
        return bool(self._under_way)

    def tend(self, pressure: Pressure) -> None:
        """Take what was asked for, and go on with what is under way.

        Args:
            pressure: pauses and resumes.
        """
        for event in self._channel.news():
            if isinstance(event, GroupReplayRequested):
                self._take(event, pressure)
            elif isinstance(event, GroupReplayAnswered):
                self._note(event)
        for number, one in list(self._under_way.items()):
            if not one.begun:
                self._await_rest(number, one, pressure)
            if one.begun:
                self._await_commit(number, one, pressure)
            if not one.places:
                del self._under_way[number]

    def leave(self, pressure: Pressure) -> None:
        """The member ends: begin nothing more."""
        for number, one in list(self._under_way.items()):
            if not one.begun:
                said = "its member is being stopped"
                self._give_up(number, one, pressure, ReplayOutcome.LOST_PARTITION, said)
                del self._under_way[number]

    def close(self) -> None:
        """Listen no more."""
        self._channel.close()

    # ---

    def _take(self, request: GroupReplayRequested, pressure: Pressure) -> None:
        left = (request.deadline - self._clock.now()).total_seconds()
        numbers: dict[int, dict[str, ReplayPlace]] = {}
        for place in request.places:
            known = self._answers.get((request.request_id, place.topic, place.partition))
            if known is None:
                numbers.setdefault(place.partition, {})[place.topic] = place
            elif known[0].member == self._member():  # it is done once, and answered as often as it is asked for
                self._channel.answer(known[0])
        for number, places in numbers.items():
            before = self._under_way.get(number)
            stays = self._membership.stays_of(number)
            if not stays or left <= 0 or (before is not None and before.request_id == request.request_id):
                continue
            one = _Replay(request.request_id, places, self._clock.monotonic() + left, stays)
            if why := "another replay of it is under way" if before is not None else self._why_not(places, stays):
                self._answer_all(number, one, ReplayOutcome.PREVENTED, why)
                continue
            self._under_way[number] = one
            for stay in stays:
                stay.resting = True
            pressure.pause(stays, PauseReason.REPLAY)

    def _note(self, answer: GroupReplayAnswered) -> None:
        """An answer, anybody's, that is the last one of its partition."""
        if answer.outcome is ReplayOutcome.LOST_PARTITION:
            return
        now = self._clock.monotonic()
        self._answers = {key: one for key, one in self._answers.items() if now - one[1] < KEEP_SECONDS}
        self._answers.setdefault((answer.request_id, answer.topic, answer.partition), (answer, now))

    def _why_not(self, places: Mapping[str, ReplayPlace], stays: Sequence[OwnedPartition]) -> str:
        ids = {stay.topic: stay.topic_id for stay in stays}
        for topic, place in places.items():
            if topic not in ids or topic.startswith(f"{self._group}."):
                return f"{topic} is not a source of the group"
            if ids[topic] != place.topic_id:
                return f"{topic} was deleted and made again since this was asked for"
        return ""

    def _await_rest(self, number: int, one: _Replay, pressure: Pressure) -> None:
        """Restart the number once nothing of it runs."""
        late = self._clock.monotonic() > one.deadline
        if any(stay.gone for stay in one.stays):
            said = "a rebalance took it before it could begin"
            self._give_up(number, one, pressure, ReplayOutcome.LOST_PARTITION, said)
        elif any(stay.position is None or PauseReason.OPENING in stay.pauses for stay in one.stays):
            if late:
                said = "it is not known yet where it is read from: the cluster or the database does not answer"
                self._give_up(number, one, pressure, ReplayOutcome.PREVENTED, said)
        elif not (running := self._dispatcher.wait_idle(0.0, one.stays)):
            offsets = {topic: place.offset for topic, place in one.places.items()}
            one.begun = self._membership.restart(number, offsets)
        elif late:
            shown = ", ".join(map(str, running[:MAX_SHOWN])) + (", …" if len(running) > MAX_SHOWN else "")
            said = f"what is at work did not end in time: {shown}"
            self._give_up(number, one, pressure, ReplayOutcome.PREVENTED, said)

    def _await_commit(self, number: int, one: _Replay, pressure: Pressure) -> None:
        """Let those be read whose new place the broker has acknowledged."""
        waiting = []
        for stay in one.begun:
            if stay.acknowledged is not None:
                if not stay.gone:
                    pressure.resume([stay], PauseReason.REPLAY)
                self._answer(number, one, stay.topic, ReplayOutcome.APPLIED, "", stay.acknowledged)
            elif stay.gone:
                said = "a rebalance took it before the broker had acknowledged the new position"
                self._answer(number, one, stay.topic, ReplayOutcome.LOST_PARTITION, said)
            else:
                waiting.append(stay)
        one.begun = waiting
        self._membership.commit([stay for stay in waiting if stay.position is not None])

    def _give_up(self, number: int, one: _Replay, pressure: Pressure, outcome: ReplayOutcome, why: str) -> None:
        """Go on as if nothing had been asked for."""
        for stay in one.stays:
            stay.resting = False
        pressure.resume(one.stays, PauseReason.REPLAY)
        self._answer_all(number, one, outcome, why)

    def _answer_all(self, number: int, one: _Replay, outcome: ReplayOutcome, detail: str) -> None:
        for topic in list(one.places):
            self._answer(number, one, topic, outcome, detail)

    def _answer(
        self,
        number: int,
        one: _Replay,
        topic: str,
        outcome: ReplayOutcome,
        detail: str,
        offset: int | None = None,
    ) -> None:
        del one.places[topic]
        answer = GroupReplayAnswered(
            group=self._group,
            request_id=one.request_id,
            topic=topic,
            partition=number,
            outcome=outcome,
            offset=offset,
            detail=detail,
            member=self._member(),
        )
        self._note(answer)
        self._channel.answer(answer)
        place = f"{topic}/{number}"
        log.info("replay", group=self._group, partition=place, outcome=outcome.value, offset=offset, detail=detail)
