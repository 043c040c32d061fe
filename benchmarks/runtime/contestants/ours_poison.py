"""offsetzero under a steady load with poison in every second window: how long healthy keys wait."""

import time

import ours
from terms import Meter, arguments, read_stamp, report
from windows import centiles

from offsetzero.consumers.context import Context
from offsetzero.schemas.documents import DocumentUploaded

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
stamps = [(*read_stamp(number)[:2], came) for number, came in found]
waits = [(sent, sent, came) for sent, key, came in stamps if key >= args.healthy]
begin = min(sent for sent, _, _ in stamps)
report(
    meter,
    of=args.of,
    **counted,
    **centiles(waits, begin=begin, window=args.window, settle=SETTLE),
)
