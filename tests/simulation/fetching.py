"""The fetching half of the simulated client: what is assigned, paused, and handed out next."""

from collections import deque
from dataclasses import dataclass

from confluent_kafka import KafkaError, KafkaException, TopicPartition

from simulation.log import Place
from simulation.message import SimMessage
from simulation.world import World


@dataclass
class Fetch:
    """An assigned partition, as the client fetches it.

    Attributes:
        position: the next offset to hand out.
        begins: the time from which on the client can seek in it.
        told_end: the end of the log that was reported last.
    """

    position: int
    begins: float
    told_end: int = -1


class Fetching:
    """As much of `confluent_kafka.Consumer` as is about fetching.

    Args:
        world: has the log.
        name: of the member.
    """

    def __init__(self, world: World, name: str) -> None:
        self.name = name
        self.assigned: dict[Place, Fetch] = {}
        self.paused: set[Place] = set()  # outlives an assignment, as the client's does
        self._world = world
        self._baton = world.baton
        self._assigning = False  # the callback has taken over what was assigned
        self._odd: deque[KafkaError] = deque()

    def pause(self, partitions: list[TopicPartition]) -> None:
        self.paused |= {(one.topic, one.partition) for one in partitions}
        self._say("pauses", partitions)

    def resume(self, partitions: list[TopicPartition]) -> None:
        if any((one.topic, one.partition) in self.paused for one in partitions):
            self._say("resumes", partitions)
        self.paused -= {(one.topic, one.partition) for one in partitions}

    def assign(self, partitions: list[TopicPartition]) -> None:
        self.assigned.clear()
        self.incremental_assign(partitions)

    def incremental_assign(self, partitions: list[TopicPartition]) -> None:
        self._assigning = True
        for one in partitions:
            self.assigned[one.topic, one.partition] = Fetch(one.offset, self._baton.now + self._baton.hop())

    def seek(self, partition: TopicPartition) -> None:
        fetch = self.assigned.get((partition.topic, partition.partition))
        if fetch is None or self._baton.now < fetch.begins:
            raise KafkaException(KafkaError(KafkaError._STATE))
        fetch.position, fetch.told_end = partition.offset, -1

    def get_watermark_offsets(self, place: TopicPartition, *, cached: bool) -> tuple[int, int]:
        return 0, self._world.log[place.topic, place.partition].stable

    def tell_error(self, error: KafkaError) -> None:
        """Have a poll return an event that says something is wrong."""
        self._odd.append(error)

    def _next(self) -> SimMessage | None:
        if self._odd:
            return SimMessage(("", 0), -1, None, None, self._odd.popleft())
        open_places = [place for place in self.assigned if place not in self.paused]
        start = self._baton.dice.randrange(len(open_places)) if len(open_places) > 1 else 0
        for place in open_places[start:] + open_places[:start]:
            fetch, partition = self.assigned[place], self._world.log[place]
            index, end = partition.index(fetch.position), partition.stable
            if index < len(partition.records) and (record := partition.records[index]).offset < end:
                fetch.position = record.offset + 1
                self._baton.say(f"{self.name} reads {record}")
                value, wrong = self._world.memory.hold(self.name, record)
                if wrong:
                    self._baton.fail(wrong)
                return SimMessage(place, record.offset, record, value, None)
            if fetch.told_end < end:
                fetch.position = fetch.told_end = end
                return SimMessage(place, end, None, None, KafkaError(KafkaError._PARTITION_EOF))
        return None

    def _say(self, what: str, partitions: list[TopicPartition]) -> None:
        shown = " ".join(f"{one.topic}/{one.partition}" for one in partitions) or "nothing"
        self._baton.say(f"{self.name} {what} {shown}")
