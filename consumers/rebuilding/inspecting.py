"""A generation to look at: what a projection was at a time. It is never read."""

from collections.abc import Callable, Sequence
from datetime import datetime

from offsetzero.consumers.group import ConsumerGroup
from offsetzero.consumers.replaying import spans
from offsetzero.consumers.replaying.job import Progress, SideJob
from offsetzero.consumers.replaying.looking import Wanted
from offsetzero.consumers.replaying.spans import Span
from offsetzero.generation import Generation
from offsetzero.retry.policy import RetryPolicy
from offsetzero.settings import Settings

CALLS = 5
"""How often a handler is called for an event whose failure may pass; then the event is left out, as a dead letter."""


def until(settings: Settings, generation: Generation, topics: Sequence[str], end: datetime) -> list[Span]:
    """The records of each partition before the first one that is not older than a time.

    Args:
        settings: name the cluster.
        generation: that is filled.
        topics: the sources of the group.
        end: the time, by the records' own timestamps.

    Raises:
        TopicError: a topic is missing, or the cluster does not answer.
    """
    return spans.find(settings, generation.name, "earliest", end, sources=topics)


class Filling(SideJob):
    """Runs the handlers of a projection over spans for a generation with a name, and ends.

    Nothing waits in a retry topic afterwards: what fails is tried again at once, `CALLS` times in all, and is a dead
    letter of that generation then. Begun again, it does what was not done.

    Args:
        group: the declaration.
        settings: of this process.
        found: what is read.
        generation: that is filled.
        progress: called several times a second.
    """

    _follows = False

    def __init__(
        self,
        group: ConsumerGroup,
        settings: Settings,
        found: Sequence[Span],
        generation: Generation,
        progress: Callable[[Progress], None],
    ) -> None:
        super().__init__(group, settings, found, Wanted(), progress, generation=generation.number)
        self._policy = RetryPolicy([], attempts=CALLS)
