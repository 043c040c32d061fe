"""Counts anew from offset zero: the group's offsets and its changelog, put back to their beginning."""

from dataclasses import dataclass

from confluent_kafka import OFFSET_END, TopicPartition

from offsetzero.consumers import reset
from offsetzero.consumers.groups.usage import NAME
from offsetzero.settings import Settings
from offsetzero.topics import catalogue, cluster
from offsetzero.topics.admin import TIMEOUT, answer, client
from offsetzero.topics.names import Names


@dataclass(frozen=True, slots=True)
class Rebuilding:
    """What a rebuild of the group will do.

    Attributes:
        moves: of its offsets.
        partitions: of the changelog that is emptied.
    """

    moves: tuple[reset.Move, ...]
    partitions: int

    @property
    def records(self) -> int:
        """Offsets that the group will read again."""
        return sum(move.repeated for move in self.moves)


def plan(settings: Settings) -> Rebuilding:
    """What would be done; nothing is changed.

    Raises:
        GroupStopped: the group has members; they must be stopped first.
        TopicError: a topic does not exist, or the cluster does not answer.
    """
    moves = [move for source in catalogue.LISTENERS[NAME] for move in reset.plan(settings, NAME, "earliest", source)]
    return Rebuilding(tuple(moves), cluster.partitions(settings).get(catalogue.USAGE_CHANGELOG, 0))


def apply(settings: Settings, rebuilding: Rebuilding) -> None:
    """Do it; members that are started then count everything that is retained and not past its time.

    First the offsets, then the changelog. Ended between the two nothing is lost or counted twice: a window knows the
    offsets that are in it. The same call again ends it.

    Raises:
        TopicError: the group has members, or the cluster refuses.
    """
    admin, names = client(settings), Names(settings.kafka.namespace)
    reset.apply(settings, NAME, rebuilding.moves)
    topic = names.topic(catalogue.USAGE_CHANGELOG)
    ends = [TopicPartition(topic, number, OFFSET_END) for number in range(rebuilding.partitions)]
    for place, future in admin.delete_records(ends, request_timeout=TIMEOUT).items():
        answer(future, f"{catalogue.USAGE_CHANGELOG}/{place.partition}")
