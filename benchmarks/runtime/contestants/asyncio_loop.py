"""A bare asyncio loop: a queue for each key, at most so many handlings at once. It commits what it has not done."""

import asyncio
from collections import deque

from confluent_kafka import Consumer, KafkaException
from spans import OPTIONS, Spans
from terms import BATCH, KEYS, NUMBER, arguments, decode

args = arguments(**OPTIONS)
spans = Spans(args.count, args.pause)
consumer = Consumer(
    {
        "bootstrap.servers": args.bootstrap,
        "group.id": args.group,
        "group.protocol": "consumer",
        "auto.offset.reset": "earliest",
    }
)


async def main() -> None:
    """Fetch in a thread, handle in tasks, one of a key at a time."""
    ended = asyncio.Event()
    spans.done = ended.set
    slots = asyncio.Semaphore(args.concurrency)
    queues: dict[int, deque[int]] = {}
    tasks = set()

    async def lane(key: int) -> None:
        queue = queues[key]
        while queue:
            number = queue.popleft()
            async with slots:
                began = spans.begin()
                await asyncio.sleep(spans.pauses[number])
                spans.end(number, began)
        del queues[key]

    consumer.subscribe([args.topic])
    while not ended.is_set():
        for message in await asyncio.to_thread(consumer.consume, BATCH, 0.05):
            if message.error():
                raise KafkaException(message.error())
            number = decode(message.value())[NUMBER]
            key = number % KEYS
            if key in queues:
                queues[key].append(number)
            else:
                queues[key] = deque([number])
                task = asyncio.create_task(lane(key))
                tasks.add(task)
                task.add_done_callback(tasks.discard)
    consumer.close()


asyncio.run(main())
spans.report()
