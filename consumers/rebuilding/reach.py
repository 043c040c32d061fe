"""How far a generation of a projection has read its sources."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

import psycopg

from offsetzero.generation import Generation
from offsetzero.settings import Settings
from offsetzero.store import positions
from offsetzero.store.script import run
from offsetzero.store.starts import Place
from offsetzero.topics import retained


@dataclass(frozen=True, slots=True)
class Reach:
    """Where it is, and where the logs of its sources begin and end for one who reads what is committed. Pure.

    Attributes:
        at: the positions that the database has; a partition without one is at the beginning.
        low: the first offsets.
        end: the last stable offsets.
    """

    at: Mapping[Place, int]
    low: Mapping[Place, int]
    end: Mapping[Place, int]

    @property
    def total(self) -> int:
        """Offsets of the logs."""
        return sum(end - self.low[place] for place, end in self.end.items())

    @property
    def left(self) -> int:
        """Offsets before it."""
        return sum(self.behind(place, end) for place, end in self.end.items())

    @property
    def done(self) -> int:
        """Offsets behind it."""
        return self.total - self.left

    def behind(self, place: Place, end: int) -> int:
        """How many offsets it is behind one in a partition."""
        return max(0, end - max(self.at.get(place, 0), self.low[place]))

    def lacks(self, ends: Mapping[Place, int]) -> int:
        """How many offsets it is behind these, in all partitions."""
        return sum(self.behind(place, end) for place, end in ends.items())


def look(settings: Settings, connection: psycopg.Connection, generation: Generation, topics: Iterable[str]) -> Reach:
    """How far it is now.

    Args:
        settings: name the cluster.
        connection: to the database; in autocommit.
        generation: of the group.
        topics: its sources.

    Raises:
        TopicError: a topic does not exist, or the cluster does not answer.
    """
    at = {place: one.offset for place, one in run(connection, positions.of_generation(generation)).items()}
    low, end = {}, {}
    for topic in topics:
        for number, one in retained.bounds(settings, topic).items():
            low[topic, number], end[topic, number] = one.low, one.end
    return Reach(at, low, end)
