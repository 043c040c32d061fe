"""Tell the members of a running group to read from elsewhere, and hear what becomes of it; without a rebalance."""

from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from datetime import timedelta
from enum import StrEnum
from uuid import UUID, uuid4

from offsetzero.clock import SYSTEM
from offsetzero.consumers.control.reader import ControlReader
from offsetzero.consumers.replaying.spans import Span
from offsetzero.errors import TopicError
from offsetzero.producers.publisher import Publisher
from offsetzero.schemas.control import GroupReplayAnswered, GroupReplayRequested, ReplayOutcome, ReplayPlace
from offsetzero.settings import Settings
from offsetzero.store.starts import Place
from offsetzero.topics import cluster, lag, offsets
from offsetzero.topics.catalogue import CONTROL, TOPICS

AGAIN_SECONDS = 1.0
"""Between two requests for what has no answer."""
GRACE_SECONDS = 2.0
"""After the deadline, for answers that are on their way."""
ANSWER_SECONDS = 10.0
"""For the broker to take a request."""


class Became(StrEnum):
    """What has become of a partition."""

    APPLIED = "applied"
    PREVENTED = "prevented"
    LOST_PARTITION = "lost_partition"
    NO_ANSWER = "no answer"


_BECAME = {
    ReplayOutcome.APPLIED: Became.APPLIED,
    ReplayOutcome.PREVENTED: Became.PREVENTED,
    ReplayOutcome.LOST_PARTITION: Became.LOST_PARTITION,
}


@dataclass(frozen=True, slots=True)
class Told:
    """The end of it for one partition.

    Attributes:
        span: what was asked for.
        became: of it.
        offset: where it is read from; None unless it was applied.
        detail: a sentence for people, empty when there is nothing to say.
        committed: what Kafka holds for the group now; None unless that was looked up, or when there is none.
    """

    span: Span
    became: Became
    offset: int | None = None
    detail: str = ""
    committed: int | None = None


def replay(
    settings: Settings,
    group: str,
    spans: Sequence[Span],
    seconds: float,
    ownerless: Callable[[Sequence[Place]], None] = lambda _places: None,
) -> list[Told]:
    """Have the members of a group read partitions from the first record of a span on.

    Asked once a second of what has no answer, with one id: a member does it once, and a partition that moves is taken
    up by its next owner.

    Args:
        settings: name the cluster.
        group: what Kafka knows the group by.
        spans: one for each partition.
        seconds: how long members may take; a little later this returns in any case.
        ownerless: told of partitions without an owner: no member has them, or they are on their way between two.

    Returns:
        What has become of each, in the order of `spans`.

    Raises:
        TopicError: the cluster refuses, or does not answer.
        PublishError: it does not take the request.
    """
    asking = _Asking(group, spans, seconds)
    reader = _reader(settings)
    try:
        with Publisher(settings) as publisher:
            asking.ask(publisher)
            owned_at = asked_at = SYSTEM.monotonic()
            while asking.open and SYSTEM.monotonic() < asking.until:
                asking.hear(reader)
                now = SYSTEM.monotonic()
                if asking.open and now - owned_at > AGAIN_SECONDS:
                    owned_at = now
                    with suppress(TopicError):  # it is only told
                        ownerless(asking.ownerless(settings))
                if asking.open and now - asked_at > AGAIN_SECONDS and now < asking.until - GRACE_SECONDS:
                    asked_at = now
                    asking.ask(publisher)
    finally:
        reader.close()
    return asking.told(settings)


def _reader(settings: Settings) -> ControlReader:
    try:
        return ControlReader(settings)
    except TopicError:  # members make the topic when they start; these have not
        cluster.ensure(settings, [topic for topic in TOPICS if topic.name == CONTROL])
        return ControlReader(settings)


class _Asking:
    """One request, its answers so far."""

    def __init__(self, group: str, spans: Sequence[Span], seconds: float) -> None:
        self._group = group
        self._spans = {span.place: span for span in spans}
        self._id: UUID = uuid4()
        self._deadline = SYSTEM.now() + timedelta(seconds=seconds)
        self.until = SYSTEM.monotonic() + seconds + GRACE_SECONDS
        self._answers: dict[Place, GroupReplayAnswered] = {}

    @property
    def open(self) -> list[Span]:
        """Those without a last answer: who has lost a partition leaves it to the next owner."""
        return [span for place, span in self._spans.items() if not self._is_over(place)]

    def ask(self, publisher: Publisher) -> None:
        """For these, once more."""
        places = [
            ReplayPlace(topic=one.topic, topic_id=one.topic_id, partition=one.partition, offset=one.first)
            for one in self.open
        ]
        request = GroupReplayRequested(group=self._group, request_id=self._id, deadline=self._deadline, places=places)
        publisher.publish(request).result(ANSWER_SECONDS)

    def hear(self, reader: ControlReader) -> None:
        """Take in what was answered."""
        for event in reader.read(0.1):
            if isinstance(event, GroupReplayAnswered) and event.request_id == self._id:
                place = event.topic, event.partition
                if place in self._spans and not self._is_over(place):
                    self._answers[place] = event

    def ownerless(self, settings: Settings) -> list[Place]:
        """Those of the open ones that no member has."""
        members = lag.group_state(settings, self._group).members
        owned = {place for member in members for place in member.assignment}
        return [span.place for span in self.open if span.place not in owned]

    def told(self, settings: Settings) -> list[Told]:
        """What has become of each."""
        unsure = [place for place in self._spans if not self._is_applied(place)]
        held = offsets.committed(settings, self._group, unsure, stable=False) if unsure else {}
        return [self._told(span, held) for span in self._spans.values()]

    def _told(self, span: Span, held: Mapping[Place, offsets.Committed]) -> Told:
        answer, at = self._answers.get(span.place), held.get(span.place)
        committed = at.offset if at is not None else None
        if answer is None:
            return Told(span, Became.NO_ANSWER, committed=committed)
        became = _BECAME.get(answer.outcome, Became.PREVENTED)
        return Told(span, became, answer.offset, answer.detail, committed)

    def _is_over(self, place: Place) -> bool:
        answer = self._answers.get(place)
        return answer is not None and answer.outcome is not ReplayOutcome.LOST_PARTITION

    def _is_applied(self, place: Place) -> bool:
        answer = self._answers.get(place)
        return answer is not None and answer.outcome is ReplayOutcome.APPLIED
