"""Stands for Kafka's AdminClient, as far as the runtime asks it: ids of topics, ends of logs, committed offsets."""

from collections.abc import Generator, Iterable, Mapping, Sequence
from concurrent.futures import Future
from contextlib import contextmanager
from types import SimpleNamespace
from typing import Any

from confluent_kafka import KafkaError, KafkaException, TopicCollection, TopicPartition
from confluent_kafka.admin import OffsetSpec

from offsetzero.consumers.reading.facts import ClusterFacts
from offsetzero.errors import TopicError
from offsetzero.settings import Settings
from offsetzero.store.database import Pool
from offsetzero.topics.offsets import Committed, _marked
from simulation.faults import Answer
from simulation.log import Place
from simulation.world import World


class SimAdmin:
    """The answers are there when a call returns; it takes its time, and may come back without."""

    def __init__(self, world: World) -> None:
        self._world = world

    def describe_topics(self, topics: TopicCollection, **_: Any) -> dict[str, Future[Any]]:
        count = self._world.log.partitions
        return self._answers(
            {name: SimpleNamespace(topic_id=topic_id(name), partitions=range(count)) for name in topics.topic_names}
        )

    def list_offsets(
        self, requests: Mapping[TopicPartition, OffsetSpec], **_: Any
    ) -> dict[TopicPartition, Future[Any]]:
        latest = type(OffsetSpec.latest())  # type: ignore[no-untyped-call]
        found = {}
        for one in sorted(requests, key=lambda one: (one.topic, one.partition)):
            end = self._world.log[one.topic, one.partition].end
            found[one] = SimpleNamespace(offset=end if isinstance(requests[one], latest) else 0)
        return self._answers(found)

    def _answers(self, found: dict[Any, Any]) -> dict[Any, Future[Any]]:
        self._world.baton.step()
        lost = self._world.faults.answer("admin") is not Answer.OK
        futures: dict[Any, Future[Any]] = {}
        for name, result in found.items():
            future = futures[name] = Future()
            if lost:
                future.set_exception(KafkaException(KafkaError(KafkaError._TIMED_OUT)))
            else:
                future.set_result(result)
        return futures


class SimFacts(ClusterFacts):
    """The real reader of facts, which asks a simulated cluster and database."""

    def __init__(
        self,
        world: World,
        group: str,
        topics: Sequence[str],
        latest: Sequence[str],
        pool: Pool | None,
        *,
        hold: bool = False,
    ) -> None:
        super().__init__(Settings(), group, topics, latest, pool, hold=hold)
        self._world = world

    def _committed(self, places: Iterable[Place]) -> Mapping[Place, Committed]:
        return committed(self._world, places)

    @contextmanager
    def _cluster(self) -> Generator[Any]:
        yield SimAdmin(self._world)


def committed(world: World, places: Iterable[Place]) -> Mapping[Place, Committed]:
    """What the coordinator answers to who asks for stable offsets."""
    world.baton.step()
    asked = list(places)
    if world.faults.answer("admin") is not Answer.OK or world.transactions.has_pending(asked):
        raise TopicError("committed offsets: no answer")
    found = world.coordinator.committed
    return {place: Committed(found[place][0], *_marked(found[place][1])) for place in asked if place in found}


def topic_id(name: str) -> str:
    """The id of a topic."""
    return f"id-of-{name}"
