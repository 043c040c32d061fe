"""An idempotent effect by hand: the claim of the event ids and the effects in one transaction, then the commit."""

from typing import Any

import effect
import psycopg
from confluent_kafka import Consumer, KafkaException, Message
from contract import BATCH, NUMBER, Meter, arguments, decode, report

CLAIM = (
    "INSERT INTO processed_events (group_name, generation, source, event_id, redrive_no, outcome)"
    " SELECT %s, 1, source, event_id, 0, 'applied' FROM unnest(%s::text[], %s::text[]) AS claimed (source, event_id)"
    " ORDER BY source, event_id ON CONFLICT DO NOTHING RETURNING source, event_id"
)
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


def identity(message: Message) -> tuple[str, str]:
    """Source and id of an event."""
    headers = dict(message.headers())
    return headers["ce_source"].decode(), headers["ce_id"].decode()


def apply(connection: psycopg.Connection[Any], messages: list[Message]) -> None:
    """Both statements."""
    events = {identity(message): decode(message.value()) for message in messages}
    sources, ids = zip(*events, strict=True)
    new = [events[row] for row in connection.execute(CLAIM, (args.group, list(sources), list(ids))).fetchall()]
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
