"""offsetzero under a steady load, some of which fails in every second window: how long other keys wait."""

import time
from collections.abc import Iterable

import ours
from terms import Meter, arguments, inversions, read_stamp, report
from windows import centiles

from offsetzero import Transient
from offsetzero.consumers import runtime
from offsetzero.consumers.context import Context
from offsetzero.consumers.record import Record
from offsetzero.consumers.working.dispatch import Dispatcher
from offsetzero.retry.policy import Tier
from offsetzero.schemas.documents import DocumentUploaded

SETTLE = 2.5  # seconds at the begin of a window in which what has failed in the one before is still in work
args = arguments(
    window={"type": float, "required": True},
    healthy={"type": int, "required": True, "help": "keys from this number on never fail"},
)
TIERS = [Tier("retry-1m", 0.5), Tier("retry-10m", 1.0)]
group = ours.group(args, tiers=TIERS)
meter = Meter(args.count)
found: list[tuple[int, int, int]] = []
fetched: dict[tuple[int, int], int] = {}
failed = 0


class Noting(Dispatcher):
    """Notes when records of the source were fetched."""

    def add(self, records: Iterable[Record]) -> None:
        now, records = time.monotonic_ns() // 1000, list(records)
        fetched.update(((record.partition, record.offset), now) for record in records)
        super().add(records)


runtime.Dispatcher = Noting  # type: ignore[misc]


@group.handler(DocumentUploaded)
def note(event: DocumentUploaded, ctx: Context) -> None:
    """Notes when an event was published and when it was done with."""
    global failed
    if read_stamp(event.size_bytes)[2] >= ctx.attempt:
        failed += 1
        if ctx.attempt > len(TIERS):
            meter.tick()
        raise Transient("busy")
    now = time.monotonic_ns() // 1000
    record = ctx.handled.record  # type: ignore[attr-defined]
    since = fetched.pop((record.partition, record.offset), now) if record.copy is None else now
    found.append((event.size_bytes, since, now))
    meter.tick()


counted = ours.run(group, args, meter)
stamps = [(*read_stamp(number)[:2], since, until) for number, since, until in found]
healthy = [(sent, since, until) for sent, key, since, until in stamps if key >= args.healthy]
when = {"begin": min(sent for sent, *_ in stamps), "window": args.window, "settle": SETTLE}
turned = inversions(number for number, *_ in found)
report(
    meter,
    of=args.of,
    wrong=[f"{turned:,} inversions"] if turned else [],
    failed=failed,
    **counted,
    **centiles(((sent, sent, until) for sent, _, until in healthy), **when),
    **centiles(healthy, **when, name="inside_"),
)
