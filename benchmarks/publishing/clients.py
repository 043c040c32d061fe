"""Contestants that send bytes: key, value and headers as Publisher made them. Each imports its client itself."""

import asyncio
import itertools
from collections.abc import Callable, Iterable
from typing import Any

from race import WARM_UP, Delivered, Race, client_config


def raw(race: Race) -> None:
    """confluent-kafka's produce() with a callback; callbacks are served after 100 records."""
    _raw(race, poll_every=100)


def raw_documented(race: Race) -> None:
    """The same as its documentation shows it: callbacks are served after each record."""
    _raw(race, poll_every=1)


def _raw(race: Race, *, poll_every: int) -> None:
    from confluent_kafka import Producer

    producer = Producer(client_config(race.broker))
    delivered = Delivered()

    def produce(records: Iterable[Any]) -> None:
        for number, (key, value, headers) in enumerate(records):
            while True:
                try:
                    producer.produce(race.topic, value, key, headers=headers, on_delivery=delivered)
                    break
                except BufferError:
                    producer.poll(0.01)
            if number % poll_every == 0:
                producer.poll(0)
        producer.flush()

    records = race.records()
    produce(records[:WARM_UP])
    delivered.count = 0
    race.start()
    produce(race.each(records))
    race.stop()
    assert delivered.count == race.count


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
