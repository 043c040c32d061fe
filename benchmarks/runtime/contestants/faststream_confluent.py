"""FastStream's subscriber on confluent-kafka: an event or a batch of 500 a call, decoded in its decoder hook."""

import asyncio
import logging

from faststream import FastStream
from faststream.confluent import KafkaBroker
from faststream.confluent.message import KafkaMessage
from terms import BATCH, NUMBER, Meter, arguments, decode, report

args = arguments(way={"choices": ["single", "batch"], "default": "single"})
broker = KafkaBroker(args.bootstrap, logger=None)
app = FastStream(broker)
meter = Meter(args.count, app.exit)


async def value(message: KafkaMessage) -> object:
    """The decoder hook of single records."""
    return decode(message.body)


async def values(message: KafkaMessage) -> object:
    """The decoder hook of batches."""
    return [decode(body) for body in message.body]


if args.way == "single":

    @broker.subscriber(args.topic, group_id=args.group, auto_offset_reset="earliest", decoder=value)
    async def one(event: dict) -> None:
        """Reads a field."""
        meter.one(event[NUMBER])

else:

    @broker.subscriber(
        args.topic, group_id=args.group, auto_offset_reset="earliest", batch=True, max_records=BATCH, decoder=values
    )
    async def many(events: list[dict]) -> None:
        """Reads a field of each."""
        meter.many([event[NUMBER] for event in events])


asyncio.run(app.run(log_level=logging.WARNING))
report(meter, of=args.of)
