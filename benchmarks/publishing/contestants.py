"""One contestant in a process of its own: publishes, and prints one line of JSON.

    python contestants.py NAME BROKER NAMESPACE RECORDS COUNT

Only the standard library at the top: the peers' environment has no offsetzero. RECORDS is a pickle of (key, value,
headers); Publisher, and the service that does it by hand, are given events, and encode them while the time runs.
"""

import asyncio
import gc
import itertools
import json
import pickle
import resource
import sys
import time
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

WARM_UP = 1_000
_LINGER_MS = 0  # as Publisher


def client_config(broker: str) -> dict[str, Any]:
    """What Publisher gives its client."""
    return {
        "bootstrap.servers": broker,
        "enable.idempotence": True,
        "acks": "all",
        "compression.type": "lz4",
        "partitioner": "murmur2_random",
        "linger.ms": _LINGER_MS,
    }


class Race:
    """What a contestant is given, and its clock."""

    def __init__(self, broker: str, namespace: str, records: str, count: int) -> None:
        self.broker = broker
        self.namespace = namespace
        self.topic = f"{namespace}documents"
        self.count = count
        self._records = Path(records)
        self._started = self._cpu = 0.0

    def records(self) -> list[Any]:
        """Key, value and headers."""
        return pickle.loads(self._records.read_bytes())  # noqa: S301 - written by the process that started this one

    def each(self, items: list[Any]) -> Iterable[Any]:
        """So many of them as are measured; the first are taken again."""
        return itertools.islice(itertools.cycle(items), self.count)

    def start(self) -> None:
        """The time runs. What was prepared is out of the collector's way, which no contestant should pay for."""
        gc.collect()
        gc.freeze()
        self._cpu = time.process_time()
        self._started = time.perf_counter()

    def stop(self) -> None:
        """The last delivery report is here."""
        seconds = time.perf_counter() - self._started
        cpu = time.process_time() - self._cpu
        memory = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
        print(json.dumps({"rate": self.count / seconds, "cpu_us": cpu / self.count * 1e6, "memory_mib": memory}))


def raw(race: Race, *, poll_every: int) -> None:
    """confluent-kafka's produce() with a callback; it counts."""
    from confluent_kafka import Producer

    producer = Producer(client_config(race.broker))
    delivered = 0

    def on_delivery(error: Any, _message: Any) -> None:
        nonlocal delivered
        if error is not None:
            raise RuntimeError(error)
        delivered += 1

    def produce(records: Iterable[Any]) -> None:
        for number, (key, value, headers) in enumerate(records):
            while True:
                try:
                    producer.produce(race.topic, value, key, headers=headers, on_delivery=on_delivery)
                    break
                except BufferError:
                    producer.poll(0.01)
            if number % poll_every == 0:
                producer.poll(0)
        producer.flush()

    records = race.records()
    produce(records[:WARM_UP])
    delivered = 0
    race.start()
    produce(race.each(records))
    race.stop()
    assert delivered == race.count


def publisher(race: Race) -> None:
    """Our Publisher: all events, then flush; every delivery is kept and looked at."""
    made, events = _publisher(race)
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
        with made as publisher:
            race.start()
            for event in race.each(events):
                await publisher.publish(event)
            race.stop()

    asyncio.run(publish())


def by_hand(race: Race) -> None:
    """What a service would write without us: an id, headers, fastavro with its logical types, produce()."""
    import io
    import uuid
    from datetime import UTC, datetime

    import events as made
    from confluent_kafka import Producer
    from fastavro import schemaless_writer

    producer = Producer(client_config(race.broker))
    events = made.make()
    schema, prefix, common = made.by_hand()
    delivered = 0

    def on_delivery(error: Any, _message: Any) -> None:
        nonlocal delivered
        if error is not None:
            raise RuntimeError(error)
        delivered += 1

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
                    producer.produce(race.topic, out.getvalue(), key, headers=headers, on_delivery=on_delivery)
                    break
                except BufferError:
                    producer.poll(0.01)
            producer.poll(0)
        producer.flush()

    publish(events[:WARM_UP])
    delivered = 0
    race.start()
    publish(race.each(events))
    race.stop()
    assert delivered == race.count


def _publisher(race: Race) -> tuple[Any, list[Any]]:
    import events as made

    from offsetzero.producers.publisher import Publisher
    from offsetzero.settings import Settings

    events = made.make()
    settings = Settings(kafka={"bootstrap_servers": race.broker, "namespace": race.namespace})
    publisher = Publisher(settings, source=made.SOURCE)
    for event in events[:WARM_UP]:
        publisher.publish(event)
    publisher.flush()
    return publisher, events


def aiokafka(race: Race) -> None:
    """aiokafka's send(): all records, then their futures."""

    async def publish(client: Any, records: list[Any]) -> None:
        race.start()
        futures = [
            await client.send(race.topic, value, key, headers=headers) for key, value, headers in race.each(records)
        ]
        await asyncio.gather(*futures)
        race.stop()

    _aiokafka(race, publish)


def aiokafka_await(race: Race) -> None:
    """aiokafka's send_and_wait(), one by one."""

    async def publish(client: Any, records: list[Any]) -> None:
        race.start()
        for key, value, headers in race.each(records):
            await client.send_and_wait(race.topic, value, key, headers=headers)
        race.stop()

    _aiokafka(race, publish)


def _aiokafka(race: Race, publish: Callable[[Any, list[Any]], Any]) -> None:
    from aiokafka import AIOKafkaProducer

    async def run() -> None:
        records = [(key.encode(), value, headers) for key, value, headers in race.records()]
        async with AIOKafkaProducer(
            bootstrap_servers=race.broker, enable_idempotence=True, acks="all", compression_type="lz4"
        ) as client:
            for key, value, headers in records[:WARM_UP]:
                await client.send(race.topic, value, key, headers=headers)
            await client.flush()
            await publish(client, records)

    asyncio.run(run())


def faststream(race: Race) -> None:
    """FastStream's publish() with no_confirm; its futures every 10,000 records, or its queue is full."""

    async def publish(broker: Any, records: list[Any]) -> None:
        race.start()
        every = iter(race.each(records))
        while part := list(itertools.islice(every, 10_000)):
            futures = [
                await broker.publish(value, race.topic, key=key, headers=headers, no_confirm=True)
                for key, value, headers in part
            ]
            await asyncio.gather(*futures)
        race.stop()

    _faststream(race, publish)


def faststream_await(race: Race) -> None:
    """FastStream's publish(), one by one."""

    async def publish(broker: Any, records: list[Any]) -> None:
        race.start()
        for key, value, headers in race.each(records):
            await broker.publish(value, race.topic, key=key, headers=headers)
        race.stop()

    _faststream(race, publish)


def _faststream(race: Race, publish: Callable[[Any, list[Any]], Any]) -> None:
    from faststream.confluent import KafkaBroker

    async def run() -> None:
        # Its headers are a dictionary of text.
        records = [
            (key.encode(), value, {name: text.decode() for name, text in headers})
            for key, value, headers in race.records()
        ]
        config = client_config(race.broker)
        async with KafkaBroker(config.pop("bootstrap.servers"), config=config, logger=None) as broker:
            for key, value, headers in records[:10]:
                await broker.publish(value, race.topic, key=key, headers=headers)
            await publish(broker, records)

    asyncio.run(run())


CONTESTANTS: dict[str, Callable[[Race], None]] = {
    "raw": lambda race: raw(race, poll_every=100),
    "raw-documented": lambda race: raw(race, poll_every=1),
    "by-hand": by_hand,
    "publisher": publisher,
    "publisher-result": publisher_result,
    "publisher-await": publisher_await,
    "aiokafka": aiokafka,
    "aiokafka-await": aiokafka_await,
    "faststream": faststream,
    "faststream-await": faststream_await,
}

if __name__ == "__main__":
    name, broker, namespace, records, count = sys.argv[1:]
    CONTESTANTS[name](Race(broker, namespace, records, int(count)))
