"""An idempotent effect by hand: the claim of the event ids and the effects in one transaction, then the commit."""

from typing import Any

import effect
import psycopg
from confluent_kafka import Consumer, KafkaException, Message
from terms import BATCH, NUMBER, Meter, arguments, decode, report

args = arguments(database={"required": True}, way={"choices": ["batch", "single"], "default": "batch"})
meter = Meter(args.count)
effect.prepare(args.database)
consumer = Consumer(
    {
        "bootstrap.servers": args.bootstrap,
        "group.id": args.group,
        "group.protocol": "consumer",
        "auto.offset.reset": "earliest",
        "enable.auto.commit": False,
    }
)


def apply(connection: psycopg.Connection[Any], messages: list[Message]) -> None:
    """Both statements."""
    events = {effect.identity(message): decode(message.value()) for message in messages}
    sources, ids = zip(*events, strict=True)
    new = [events[row] for row in connection.execute(effect.CLAIM, (args.group, list(sources), list(ids))).fetchall()]
    columns = [[event[name] for event in new] for name in (NUMBER, "document_id", "name")]
    if args.way == "batch":
        connection.execute(effect.MANY, columns)
    else:
        connection.execute(effect.ONE, [column[0] for column in columns])
    meter.many(columns[0])


consumer.subscribe([args.topic])
with psycopg.connect(args.database) as connection:
    while not meter.finished.is_set():
        messages = consumer.consume(BATCH if args.way == "batch" else 1, 1.0)
        for message in messages:
            if message.error():
                raise KafkaException(message.error())
        if messages:
            with connection.transaction():
                apply(connection, messages)
            if args.way == "batch":
                consumer.commit(asynchronous=True)
consumer.close()
report(meter, of=args.of, ordered=False, wrong=effect.problems(args.database, args.count))
