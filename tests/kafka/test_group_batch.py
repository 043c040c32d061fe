"""Batch handlers on the real broker and the real database: one call, one transaction, one effect for each event."""

import threading
from collections.abc import Callable
from contextlib import AbstractContextManager
from uuid import uuid4

import psycopg
import pytest
from kafka.conftest import RunningGroup, await_dead_letters, await_effects, effects, uploaded

from offsetzero.consumers.context import BatchContext
from offsetzero.consumers.group import ConsumerGroup
from offsetzero.errors import ConfigurationError
from offsetzero.producers.publisher import Publisher
from offsetzero.retry.policy import Tier
from offsetzero.schemas.documents import DocumentUploaded
from offsetzero.settings import Settings

Running = Callable[..., AbstractContextManager[RunningGroup]]
INSERT = "INSERT INTO effects (document_id, note) SELECT * FROM unnest(%s::uuid[], %s::text[])"


def insert(events: list[DocumentUploaded], ctx: BatchContext) -> None:
    ctx.connection.execute(INSERT, ([event.document_id for event in events], [event.name for event in events]))


def test_many_events_in_one_call_keep_the_order_of_their_keys(
    settings: Settings, running: Running, database: psycopg.Connection
) -> None:
    ids = [uuid4() for _ in range(7)]
    with Publisher(settings) as publisher:
        for number in range(300):
            publisher.publish(uploaded(ids[number % 7], name=str(number)))
    group = ConsumerGroup("audit")
    sizes: list[int] = []

    @group.batch(DocumentUploaded, size=100)
    def note(events: list[DocumentUploaded], ctx: BatchContext) -> None:
        sizes.append(len(events))
        insert(events, ctx)

    with running(group):
        found = await_effects(database, 300)
    for one in ids:
        numbers = [int(note) for document_id, note, _ in found if document_id == one]
        assert numbers == sorted(numbers)
    assert len(found) == sum(sizes) == 300
    assert max(sizes) > 10, "calls take many events"
    assert max(sizes) <= 100


def test_only_the_failing_events_of_a_batch_are_retried(
    settings: Settings, running: Running, database: psycopg.Connection
) -> None:
    """karafka#3216: one decided for the whole batch, and what others had not done was taken for done."""
    bad = {"17", "18", "63"}
    with Publisher(settings) as publisher:
        for number in range(100):
            publisher.publish(uploaded(name=str(number)))
    group = ConsumerGroup("audit", tiers=[Tier("retry-1m", 0.2)])
    calls: list[list[str]] = []

    @group.batch(DocumentUploaded)
    def note(events: list[DocumentUploaded], ctx: BatchContext) -> None:
        calls.append([event.name for event in events])
        insert(events, ctx)
        attempts = [context.attempt for context in ctx.contexts]
        if any(event.name in bad and attempt == 1 for event, attempt in zip(events, attempts, strict=True)):
            raise ValueError("one of these")
        for context in ctx.contexts:
            context.log.info("noted")

    with running(group):
        found = await_effects(database, 100)
    assert sorted(int(note) for _, note, _ in found) == list(range(100)), "each has its effect once"
    alone = [call[0] for call in calls if len(call) == 1]
    assert bad <= set(alone), "bisected until only the failing one was left"
    again = [name for call in calls[calls.index([alone[-1]]) :] for name in call]
    assert bad & set(again)


def test_an_event_that_comes_twice_is_handled_once_within_and_between_batches(
    settings: Settings, running: Running, database: psycopg.Connection
) -> None:
    event = uploaded()
    event_id = uuid4()
    with Publisher(settings) as publisher:
        for _ in range(5):
            publisher.publish(event, event_id=event_id)
    group = ConsumerGroup("audit")
    group.batch(DocumentUploaded, size=2)(insert)
    with running(group):
        await_effects(database, 1)
        with Publisher(settings) as publisher:
            publisher.publish(event, event_id=event_id)
            publisher.publish(uploaded(name="last"))
        await_effects(database, 2)
    assert sorted(note for _, note, _ in effects(database)) == ["a.pdf", "last"]


def test_what_cannot_be_read_is_dead_lettered_and_the_rest_of_its_batch_handled(
    settings: Settings, running: Running, database: psycopg.Connection
) -> None:
    with Publisher(settings) as publisher:
        for number in range(20):
            record = publisher.publish(uploaded(name=str(number)))
        place = record.result()
        publisher._producer.produce(place.topic, key=b"odd", value=b"no event").result()
    group = ConsumerGroup("audit")
    group.batch(DocumentUploaded)(insert)
    with running(group):
        await_effects(database, 20)
        [letter] = await_dead_letters(settings, "audit", 1)
    assert letter.value == b"no event"


def test_a_batch_without_a_database_is_called_at_least_once(settings: Settings, running: Running) -> None:
    with Publisher(settings) as publisher:
        for number in range(50):
            publisher.publish(uploaded(name=str(number)))
    group = ConsumerGroup("audit", database=False)
    seen: list[str] = []
    all_seen = threading.Event()

    @group.batch(DocumentUploaded)
    def note(events: list[DocumentUploaded], ctx: BatchContext) -> None:
        assert ctx.connection is None
        seen.extend(event.name for event in events)
        if len(seen) >= 50:
            all_seen.set()

    with running(group):
        assert all_seen.wait(30)
    assert sorted(map(int, seen)) == list(range(50))


def test_what_does_not_go_with_a_batch_handler_is_refused() -> None:
    group = ConsumerGroup("audit")
    with pytest.raises(ConfigurationError, match="name event types"):
        group.batch()
    group.batch(DocumentUploaded)(insert)
    with pytest.raises(ConfigurationError, match="only handler"):
        group.handler(DocumentUploaded)(lambda event, ctx: None)
    with pytest.raises(ConfigurationError, match="does not go with step"):
        ConsumerGroup("audit", step=True).batch(DocumentUploaded)(insert)
    with pytest.raises(ConfigurationError, match="must be a sync function"):
        ConsumerGroup("audit").batch(DocumentUploaded)(make_async())
    with pytest.raises(ConfigurationError, match="size=0"):
        ConsumerGroup("audit").batch(DocumentUploaded, size=0)(insert)


def make_async() -> Callable[..., None]:
    async def note(events: list[DocumentUploaded], ctx: BatchContext) -> None: ...

    return note  # type: ignore[return-value]
