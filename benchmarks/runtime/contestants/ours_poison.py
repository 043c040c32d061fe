"""offsetzero under a steady load with poison in every second window: how long healthy keys wait."""

import statistics
import time
from collections import defaultdict

import ours
from terms import Meter, arguments, read_stamp, report

from offsetzero.consumers.context import Context
from offsetzero.schemas.documents import DocumentUploaded

WARM = 2  # windows, one of each kind
SETTLE = 0.3  # seconds at the begin of a window that count for neither kind
args = arguments(
    window={"type": float, "required": True},
    healthy={"type": int, "required": True, "help": "keys from this number on are healthy in all windows"},
)
group = ours.group(args)
meter = Meter(args.count)
found: list[tuple[int, int]] = []


@group.handler(DocumentUploaded)
def note(event: DocumentUploaded, ctx: Context) -> None:
    """Notes when the event was published and when it came."""
    found.append((event.size_bytes, time.monotonic_ns() // 1000))
    meter.tick()


counted = ours.run(group, args, meter)
begin = read_stamp(min(number for number, _ in found))[0]
waits: dict[int, list[float]] = defaultdict(list)
for number, came in found:
    sent, key, _ = read_stamp(number)
    window, into = divmod((sent - begin) / 1e6, args.window)
    if key >= args.healthy and window >= WARM and into >= SETTLE:
        waits[int(window)].append((came - sent) / 1000)
# The median over windows of each window's centile: a hiccup of the machine in one window decides nothing.
report(
    meter,
    of=args.of,
    **counted,
    **{
        f"p{at}_{name}": statistics.median(
            statistics.quantiles(those, n=100)[at - 1] for window, those in waits.items() if window % 2 == kind
        )
        for kind, name in enumerate(("without", "with"))
        for at in (50, 99)
    },
)
