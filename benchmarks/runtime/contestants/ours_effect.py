"""offsetzero with an effect in PostgreSQL, in the transaction that notes its event as handled."""

import effect
import ours
from terms import BATCH, Meter, arguments, report

from offsetzero.consumers.context import BatchContext, Context
from offsetzero.schemas.documents import DocumentUploaded

args = arguments(database={"required": True}, way={"choices": ["batch", "single"], "default": "batch"})
group = ours.group(args, database=True)
meter = Meter(args.count)
effect.prepare(args.database)

if args.way == "batch":

    @group.batch(DocumentUploaded, size=BATCH)
    def many(events: list[DocumentUploaded], ctx: BatchContext) -> None:
        """One statement for all."""
        numbers = [event.size_bytes for event in events]
        columns = (numbers, [event.document_id for event in events], [event.name for event in events])
        ctx.connection.execute(effect.MANY, columns)
        meter.many(numbers)

else:

    @group.handler(DocumentUploaded)
    def one(event: DocumentUploaded, ctx: Context) -> None:
        """One statement for each."""
        ctx.connection.execute(effect.ONE, (event.size_bytes, event.document_id, event.name))
        meter.one(event.size_bytes)


counted = ours.run(group, args, meter)
report(meter, of=args.of, wrong=effect.problems(args.database, args.count), **counted)
