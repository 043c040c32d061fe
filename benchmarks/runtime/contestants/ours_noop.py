"""offsetzero with handlers that do nothing: an event or a batch a call, a field read or none."""

import ours
from terms import BATCH, Meter, arguments, report

from offsetzero.consumers.context import BatchContext, Context
from offsetzero.schemas.documents import DocumentUploaded

WAYS = ("single", "single-unread", "batch", "batch-unread")
args = arguments(way={"choices": WAYS, "default": "single"})
group = ours.group(args)
meter = Meter(args.count)

if args.way == "single":

    @group.handler(DocumentUploaded)
    def one(event: DocumentUploaded, ctx: Context) -> None:
        """Reads a field."""
        meter.one(event.size_bytes)

elif args.way == "single-unread":

    @group.handler(DocumentUploaded)
    def unread(event: DocumentUploaded, ctx: Context) -> None:
        """Reads no field."""
        meter.tick()

elif args.way == "batch":

    @group.batch(DocumentUploaded, size=BATCH)
    def many(events: list[DocumentUploaded], ctx: BatchContext) -> None:
        """Reads a field of each."""
        meter.many([event.size_bytes for event in events])

else:

    @group.batch(DocumentUploaded, size=BATCH)
    def many_unread(events: list[DocumentUploaded], ctx: BatchContext) -> None:
        """Reads no field of any."""
        meter.ticks(len(events))


report(meter, of=args.of, **ours.run(group, args, meter))
