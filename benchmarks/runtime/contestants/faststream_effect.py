"""FastStream's batch subscriber with the two statements of the loop by hand in its handler; it commits after each."""

import asyncio
import logging
from typing import Any

import effect
import psycopg
from faststream import AckPolicy, FastStream
from faststream.confluent import KafkaBroker
from faststream.confluent.annotations import KafkaMessage
from terms import BATCH, NUMBER, Meter, arguments, decode, report

args = arguments(database={"required": True})
broker = KafkaBroker(args.bootstrap, logger=None)
app = FastStream(broker)
meter = Meter(args.count, app.exit)
effect.prepare(args.database)


async def values(message: KafkaMessage) -> object:
    """The decoder hook: events by source and id."""
    return [(effect.identity(raw), decode(raw.value())) for raw in message.raw_message]


@broker.subscriber(
    args.topic,
    group_id=args.group,
    auto_offset_reset="earliest",
    batch=True,
    max_records=BATCH,
    decoder=values,
    ack_policy=AckPolicy.REJECT_ON_ERROR,
)
async def apply(events: list[Any]) -> None:
    """Both statements in one transaction."""
    known = {tuple(identity): fields for identity, fields in events}
    sources, ids = zip(*known, strict=True)
    async with connection.transaction():
        claimed = await connection.execute(effect.CLAIM, (args.group, list(sources), list(ids)))
        new = [known[row] for row in await claimed.fetchall()]
        columns = [[event[name] for event in new] for name in (NUMBER, "document_id", "name")]
        await connection.execute(effect.MANY, columns)
        meter.many(columns[0])


async def main() -> None:
    """Run the app until the last event."""
    global connection
    async with await psycopg.AsyncConnection.connect(args.database, autocommit=True) as connection:
        await app.run(log_level=logging.WARNING)


asyncio.run(main())
report(meter, of=args.of, ordered=False, wrong=effect.problems(args.database, args.count))
