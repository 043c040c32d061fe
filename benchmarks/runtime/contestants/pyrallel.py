"""pyrallel-consumer, the one Python peer that keeps the order of keys: its async engine with ordering by key."""

import asyncio
import logging
from typing import Any

from pyrallel_consumer.config import KafkaConfig
from pyrallel_consumer.consumer import PyrallelConsumer
from pyrallel_consumer.dto import ExecutionMode, OrderingMode, WorkItem
from spans import OPTIONS, Spans
from terms import NUMBER, Meter, arguments, decode, report

logging.disable(logging.WARNING)
args = arguments(**OPTIONS, way={"choices": ["noop", "wait"], "default": "noop"})


async def main() -> None:
    """Run it until the last event."""
    ended = asyncio.Event()
    loop = asyncio.get_running_loop()
    meter = Meter(args.count, lambda: loop.call_soon_threadsafe(ended.set))
    spans = Spans(args.count, args.pause, meter.done)

    async def handle(item: WorkItem) -> Any:
        meter.one(decode(item.payload)[NUMBER])

    async def wait(item: WorkItem) -> Any:
        began, number = spans.begin(), decode(item.payload)[NUMBER]
        await asyncio.sleep(spans.pauses[number])
        spans.end(number, began)

    config = KafkaConfig(BOOTSTRAP_SERVERS=args.bootstrap, CONSUMER_GROUP=args.group, dlq_enabled=False)
    parallel = config.parallel_consumer
    parallel.ordering_mode = OrderingMode.KEY_HASH
    parallel.worker_pool_size = 64
    parallel.execution.mode = ExecutionMode.ASYNC
    parallel.execution.max_in_flight = args.concurrency if args.way == "wait" else 1000
    consumer = PyrallelConsumer(config=config, worker=handle if args.way == "noop" else wait, topic=args.topic)
    await consumer.start()
    await ended.wait()
    await consumer.stop()
    if args.way == "noop":
        report(meter, of=args.of)
    else:
        spans.report()


asyncio.run(main())
