"""Members come and go: nothing stays paused, nothing is lost, what runs is finished before the group is left."""

import contextlib
import threading
from collections import Counter
from collections.abc import Callable
from typing import Any

import psycopg
import pytest
from kafka.conftest import RunningGroup, await_effects, effects, uploaded

from offsetzero import metrics
from offsetzero.consumers.context import Context
from offsetzero.consumers.group import ConsumerGroup
from offsetzero.producers.publisher import Publisher
from offsetzero.schemas.documents import DocumentUploaded
from offsetzero.settings import Settings
from offsetzero.topics import lag
from support import wait_until

Running = Callable[..., contextlib.AbstractContextManager[Any]]


def gated(gate: threading.Event, started: list[str], **options: Any) -> ConsumerGroup:
    """A group whose handlers wait for the gate; effects are plain inserts, so that doubles would show."""
    audit = ConsumerGroup("audit", **options)

    @audit.handler(DocumentUploaded)
    def note(event: DocumentUploaded, ctx: Context) -> None:
        started.append(event.name)
        assert gate.wait(90)
        ctx.connection.execute(
            "INSERT INTO effects (document_id, note, attempt) VALUES (%s, %s, %s)",
            (event.document_id, event.name, ctx.attempt),
        )

    return audit


def members(settings: Settings) -> int:
    """How many members have an assignment."""
    return len([one for one in lag.group_state(settings, "audit").members if one.assignment])


@pytest.mark.parametrize("protocol", ["consumer", "classic"])
def test_a_partition_paused_for_back_pressure_is_read_again_after_a_rebalance(
    protocol: str, settings: Settings, topics: None, database: psycopg.Connection
) -> None:
    """quix-streams#1124, arroyo#304: it stayed paused for ever, and the app looked healthy."""
    small = settings.model_copy(
        update={
            "groups": settings.groups.model_copy(update={"max_in_flight": 20, "drain_seconds": 60.0}),
            "kafka": settings.kafka.model_copy(update={"group_protocol": protocol}),
        }
    )
    with Publisher(settings) as publisher:
        for number in range(600):
            publisher.publish(uploaded(name=str(number)))
    gate, started, before = threading.Event(), list[str](), _pauses()
    first = RunningGroup(gated(gate, started), small)
    wait_until(lambda: _pauses() > before, what="a pause")
    second = RunningGroup(gated(gate, started), small)
    wait_until(lambda: members(settings) == 2, 60, what="two members")
    gate.set()
    second.stop()
    rows = await_effects(database, 600, 60)
    first.stop()
    assert Counter(note for _, note, _ in rows) == Counter(str(number) for number in range(600))


def _duplicates() -> float:
    return metrics.EVENTS_HANDLED.labels("audit", "document.uploaded", "duplicate")._value.get()


def _pauses() -> float:
    return metrics.PAUSES.labels("audit", "back-pressure")._value.get()


def test_what_runs_is_finished_and_committed_before_the_group_is_left(
    settings: Settings, topics: None, database: psycopg.Connection
) -> None:
    """dramatiq#376: shutdown counted as a failure. Nothing is read again, no attempt is consumed."""
    gate, started = threading.Event(), list[str]()
    with Publisher(settings) as publisher:
        for number in range(8):
            publisher.publish(uploaded(name=str(number))).result(10)
    member = RunningGroup(gated(gate, started, concurrency=8), settings)
    wait_until(lambda: len(started) == 8)
    threading.Timer(1.0, gate.set).start()
    assert member.stop() == []
    assert len(effects(database)) == 8
    assert sum(one.lag for one in lag.group_offsets(settings, "audit")) == 0


def test_a_handler_that_does_not_end_is_named_and_its_record_read_again(
    settings: Settings, topics: None, database: psycopg.Connection
) -> None:
    quick = settings.model_copy(update={"groups": settings.groups.model_copy(update={"drain_seconds": 1.0})})
    gate, started = threading.Event(), list[str]()
    with Publisher(settings) as publisher:
        publisher.publish(uploaded(name="stuck")).result(10)
    member = RunningGroup(gated(gate, started), quick)
    wait_until(lambda: started)
    left = member.stop()
    assert [record.topic for record in left] == ["documents"]
    assert sum(one.lag for one in lag.group_offsets(settings, "audit")) == 1
    gate.set()
    again = RunningGroup(gated(gate, started), settings)
    assert [row[1:] for row in await_effects(database, 1)] == [("stuck", 1)]
    again.stop()
    assert len(effects(database)) == 1


def test_a_member_that_joins_under_load_loses_and_doubles_nothing(
    settings: Settings, topics: None, database: psycopg.Connection
) -> None:
    gate, started, doubles = threading.Event(), list[str](), _duplicates()
    gate.set()
    with Publisher(settings) as publisher:
        for number in range(2000):
            publisher.publish(uploaded(name=str(number)))
    first = RunningGroup(gated(gate, started), settings)
    wait_until(lambda: len(started) > 100)
    second = RunningGroup(gated(gate, started), settings)
    wait_until(lambda: members(settings) == 2, 60, what="two members")
    for member in lag.group_state(settings, "audit").members:
        by_topic = {
            topic: {number for name, number in member.assignment if name == topic}
            for topic in ("documents", "documents.bulk", "audit.retry-1m", "audit.retry-10m")
        }
        assert len(set(map(frozenset, by_topic.values()))) == 1, "a partition and its retry topics have one owner"
    second.stop()
    rows = await_effects(database, 2000, 60)
    assert _duplicates() == doubles, "what was done was committed before the partition went"
    first.stop()
    assert Counter(note for _, note, _ in rows) == Counter(str(number) for number in range(2000))
