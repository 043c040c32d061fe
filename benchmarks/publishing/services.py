"""Contestants that publish events, and encode them while the time runs: our Publisher, and a service's own code."""

import asyncio
import io
import uuid
from collections.abc import Iterable
from datetime import UTC, datetime
from typing import Any

import events as made
from confluent_kafka import Producer
from fastavro import schemaless_writer
from race import WARM_UP, Delivered, Race, client_config

from offsetzero.producers.publisher import Publisher
from offsetzero.settings import Settings


def publisher(race: Race) -> None:
    """Our Publisher: all events, then flush; every delivery is kept and looked at."""
    _burst(race, linger=0.0)


def publisher_linger(race: Race) -> None:
    """The same, and events wait 5 ms for others to share a request with."""
    _burst(race, linger=0.005)


def _burst(race: Race, linger: float) -> None:
    made, events = _publisher(race, linger)
    with made as publisher:
        race.start()
        deliveries = [publisher.publish(event) for event in race.each(events)]
        publisher.flush(60)
        race.stop()
        assert len({(one.result(0).partition, one.result(0).offset) for one in deliveries}) == race.count


def publisher_result(race: Race) -> None:
    """Our Publisher: each delivery waited for before the next event, in a thread."""
    made, events = _publisher(race)
    with made as publisher:
        race.start()
        for event in race.each(events):
            publisher.publish(event).result(10)
        race.stop()


def publisher_await(race: Race) -> None:
    """Our Publisher: each delivery awaited before the next event, in an event loop."""
    made, events = _publisher(race)

    async def publish() -> None:
        async with made as publisher:
            race.start()
            for event in race.each(events):
                await publisher.publish_async(event)
            race.stop()

    asyncio.run(publish())


def by_hand(race: Race) -> None:
    """What a service would write without us: an id, headers, fastavro with its logical types, produce()."""
    producer = Producer(client_config(race.broker))
    events = made.make()
    schema, prefix, common = made.by_hand()
    delivered = Delivered()

    def publish(events: Iterable[Any]) -> None:
        for event in events:
            key = str(event.document_id)
            out = io.BytesIO()
            out.write(prefix)
            schemaless_writer(out, schema, event.__dict__)
            headers = [
                *common,
                ("ce_id", str(uuid.uuid4()).encode()),
                ("ce_time", datetime.now(UTC).isoformat().encode()),
                ("ce_subject", key.encode()),
                ("ce_tenantid", event.tenant_id.encode()),
                ("ce_runid", str(event.run_id).encode()),
            ]
            while True:
                try:
                    producer.produce(race.topic, out.getvalue(), key, headers=headers, on_delivery=delivered)
                    break
                except BufferError:
                    producer.poll(0.01)
            producer.poll(0)
        producer.flush()

    publish(events[:WARM_UP])
    delivered.count = 0
    race.start()
    publish(race.each(events))
    race.stop()
    assert delivered.count == race.count


def _publisher(race: Race, linger: float = 0.0) -> tuple[Publisher, list[Any]]:
    events = made.make()
    settings = Settings(kafka={"bootstrap_servers": race.broker, "namespace": race.namespace})
    publisher = Publisher(settings, source=made.SOURCE, linger=linger)
    for event in events[:WARM_UP]:
        publisher.publish(event)
    publisher.flush()
    return publisher, events
