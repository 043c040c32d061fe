"""offsetzero with handlers that take their time, one of a key at once: async ones, or sync ones in threads."""

import asyncio
import time

import ours
from spans import OPTIONS, Spans
from terms import Meter, arguments

from offsetzero.consumers.context import Context
from offsetzero.schemas.documents import DocumentUploaded

args = arguments(**OPTIONS, way={"choices": ["async", "sync"], "default": "async"})
group = ours.group(args, concurrency=args.concurrency)
spans = Spans(args.count, args.pause)
meter = Meter(args.count)

if args.way == "async":

    @group.handler(DocumentUploaded)
    async def wait(event: DocumentUploaded, ctx: Context) -> None:
        """Waits in the event loop."""
        began = spans.begin()
        await asyncio.sleep(spans.pauses[event.size_bytes])
        spans.end(event.size_bytes, began)

else:

    @group.handler(DocumentUploaded)
    def block(event: DocumentUploaded, ctx: Context) -> None:
        """Blocks its thread."""
        began = spans.begin()
        time.sleep(spans.pauses[event.size_bytes])
        spans.end(event.size_bytes, began)


spans.done = lambda: meter.done()
spans.report(**ours.run(group, args, meter))
