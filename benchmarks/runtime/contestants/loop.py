"""The client alone: a consume() loop (the ceiling), a poll() loop, and confluent's DeserializingConsumer."""

from confluent_kafka import Consumer, DeserializingConsumer, KafkaException
from terms import BATCH, NUMBER, Meter, arguments, decode, report

args = arguments(way={"choices": ["consume", "poll", "deserializing"], "default": "consume"})
meter = Meter(args.count)
config = {
    "bootstrap.servers": args.bootstrap,
    "group.id": args.group,
    "group.protocol": "consumer",
    "auto.offset.reset": "earliest",
}


def consume() -> None:
    """Batches of 500; each record's key, headers and offset are taken too, as any use of it would."""
    consumer = Consumer(config)
    consumer.subscribe([args.topic])
    while not meter.finished.is_set():
        numbers = []
        for message in consumer.consume(BATCH, 1.0):
            if message.error():
                raise KafkaException(message.error())
            message.key(), message.headers(), message.offset()
            numbers.append(decode(message.value())[NUMBER])
        if numbers:
            meter.many(numbers)
    consumer.close()


def poll() -> None:
    """One record a call."""
    consumer = Consumer(config)
    consumer.subscribe([args.topic])
    while not meter.finished.is_set():
        message = consumer.poll(1.0)
        if message is None:
            continue
        if message.error():
            raise KafkaException(message.error())
        message.key(), message.headers(), message.offset()
        meter.one(decode(message.value())[NUMBER])
    consumer.close()


def deserializing() -> None:
    """One record a call, its value read by the client's hook."""
    consumer = DeserializingConsumer({**config, "value.deserializer": lambda value, _context: decode(value)})
    consumer.subscribe([args.topic])
    while not meter.finished.is_set():
        message = consumer.poll(1.0)
        if message is None:
            continue
        message.key(), message.headers(), message.offset()
        meter.one(message.value()[NUMBER])
    consumer.close()


{"consume": consume, "poll": poll, "deserializing": deserializing}[args.way]()
report(meter, of=args.of)
