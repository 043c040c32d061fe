"""faust-streaming: an agent over a topic of raw bytes, which it decodes itself."""

import asyncio
import tempfile

import faust
from terms import NUMBER, Meter, arguments, decode, report

args = arguments()
with tempfile.TemporaryDirectory() as data:
    app = faust.App(
        args.group,
        broker=f"kafka://{args.bootstrap}",
        datadir=data,
        web_enabled=False,
        topic_disable_leader=True,
        value_serializer="raw",
        key_serializer="raw",
        consumer_auto_offset_reset="earliest",
    )
    meter = Meter(args.count)

    @app.agent(app.topic(args.topic, value_type=bytes))
    async def read(stream: faust.Stream[bytes]) -> None:
        """Reads a field of each."""
        async for value in stream:
            meter.one(decode(value)[NUMBER])

    async def main() -> None:
        """Run the app until the last event."""
        await app.start()
        while not meter.finished.is_set():
            await asyncio.sleep(0.05)
        await app.stop()

    asyncio.get_event_loop_policy().get_event_loop().run_until_complete(main())
report(meter, of=args.of)
