"""Members come and go all the time: a partition is never worked without its siblings, nor by two members."""

import threading
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import psycopg
import pytest
from confluent_kafka import Consumer, TopicPartition
from kafka.conftest import RunningGroup, await_effects, effects, uploaded

from offsetzero.client_log import LOGGER
from offsetzero.clock import SYSTEM
from offsetzero.consumers.context import Context
from offsetzero.consumers.group import ConsumerGroup
from offsetzero.consumers.resources import Resources
from offsetzero.producers.publisher import Publisher
from offsetzero.retry.classify import of_status
from offsetzero.schemas.documents import DocumentUploaded
from offsetzero.settings import Settings
from offsetzero.topics import lag
from offsetzero.topics.names import Names
from support import IS_NIGHT, wait_until

TOPICS = ("documents", "documents.bulk", "audit.retry-1m", "audit.retry-10m", "audit.redrive")
SECONDS = 90 if IS_NIGHT else 8


@dataclass(frozen=True)
class Work:
    """A handler's call: by whom, in which partition, from when to when."""

    member: str
    number: int
    begun: float
    ended: float


class Watched(Consumer):
    """A client that notes what it owns: from before the assignment is told until after the revocation was served."""

    owned: set[tuple[str, int]]

    def subscribe(self, topics: Sequence[str], *, on_assign: Any, on_revoke: Any, on_lost: Any) -> None:
        def assigned(consumer: Consumer, partitions: list[TopicPartition]) -> None:
            self.owned |= {(one.topic, one.partition) for one in partitions}
            on_assign(consumer, partitions)

        def ended(told: Callable[..., None]) -> Callable[..., None]:
            def end(consumer: Consumer, partitions: list[TopicPartition]) -> None:
                told(consumer, partitions)
                self.owned -= {(one.topic, one.partition) for one in partitions}

            return end

        super().subscribe(list(topics), on_assign=assigned, on_revoke=ended(on_revoke), on_lost=ended(on_lost))


class WatchedResources(Resources):
    def __init__(self, settings: Settings, assignor: dict[str, str]) -> None:
        super().__init__(settings)
        self.owned: set[tuple[str, int]] = set()
        self._assignor = assignor

    def consumer(self, config: Mapping[str, Any]) -> Consumer:
        made = Watched({**config, **self._assignor}, logger=LOGGER)
        made.owned = self.owned
        return made


class Member:
    """A member whose handlers note whether they may run."""

    def __init__(
        self, name: str, settings: Settings, assignor: dict[str, str], work: list[Work], alone: list[str]
    ) -> None:
        resources = WatchedResources(settings, assignor)
        names = Names(settings.kafka.namespace)
        group = ConsumerGroup("audit", concurrency=8)

        @group.handler(DocumentUploaded)
        def note(event: DocumentUploaded, ctx: Context) -> None:
            begun, number = SYSTEM.monotonic(), ctx.record.partition
            siblings = {(names.topic(topic), number) for topic in TOPICS}
            if not siblings <= resources.owned:
                alone.append(f"{name}: {ctx.record.topic}/{number} without {siblings - resources.owned}")
            threading.Event().wait(0.01)
            work.append(Work(name, number, begun, SYSTEM.monotonic()))
            if event.name.endswith("7") and ctx.attempt == 1:
                raise of_status(503)
            ctx.connection.execute(
                "INSERT INTO effects (document_id, note, attempt) VALUES (%s, %s, %s)",
                (event.document_id, event.name, ctx.attempt),
            )

        self.running = RunningGroup(group, settings, resources)


def overlaps(work: list[Work]) -> list[tuple[Work, Work]]:
    """Calls of two members for partitions of one number at one time."""
    found = []
    for number in {one.number for one in work}:
        calls = sorted((one for one in work if one.number == number), key=lambda one: one.begun)
        latest = calls[0]
        for call in calls[1:]:
            if call.member != latest.member and call.begun < latest.ended:
                found.append((latest, call))
            if call.ended > latest.ended:
                latest = call
    return found


@pytest.mark.timeout(300)
@pytest.mark.parametrize(
    ("protocol", "assignor"),
    [
        ("consumer", {}),
        ("classic", {}),
        # These tear siblings apart: what is apart rests until the members that have it are fewer.
        ("consumer", {"group.remote.assignor": "uniform"}),
        ("classic", {"partition.assignment.strategy": "roundrobin"}),
    ],
    ids=["consumer", "classic", "consumer-uniform", "classic-roundrobin"],
)
def test_a_partition_is_never_worked_without_its_siblings_nor_by_two_members(
    protocol: str, assignor: dict[str, str], settings: Settings, topics: None, database: psycopg.Connection
) -> None:
    kafka = settings.kafka.model_copy(update={"group_protocol": protocol})
    settings = settings.model_copy(update={"kafka": kafka})
    work, alone, published, ending = list[Work](), list[str](), list[str](), threading.Event()

    def join(count: int) -> Member:
        return Member(str(count), settings, assignor, work, alone)

    def publish() -> None:
        with Publisher(settings) as publisher:
            while not ending.wait(0.01):
                publisher.publish(uploaded(name=str(len(published))), bulk=len(published) % 3 == 0).result(10)
                published.append(str(len(published)))

    publishing = threading.Thread(target=publish)
    members = [join(0)]
    publishing.start()
    try:
        until = SYSTEM.monotonic() + SECONDS
        count = 1
        while SYSTEM.monotonic() < until:
            if count % 5 in (1, 2, 4):
                members.append(join(count))
            else:
                members.pop(0).running.stop()
            count += 1
            ending.wait(1.0)
    finally:
        ending.set()
        publishing.join()
    while len(members) > 1:
        members.pop(0).running.stop()
    rows = await_effects(database, len(published), 60)
    wait_until(lambda: all(one.lag == 0 for one in lag.group_offsets(settings, "audit")), what="lag 0")
    members.pop().running.stop()
    assert Counter(note for _, note, _ in effects(database)) == Counter(published)
    assert {attempt for _, note, attempt in rows if note.endswith("7")} <= {2}
    assert len({one.member for one in work}) > 1, "several members have worked"
    assert alone == []
    assert overlaps(work) == []
