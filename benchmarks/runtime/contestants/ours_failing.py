"""offsetzero under a steady load, some of which fails in every second window: how long other keys wait."""

import time

import ours
from terms import Meter, arguments, inversions, read_stamp, report
from windows import centiles

from offsetzero import Transient
from offsetzero.consumers.context import Context
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
found: list[tuple[int, int]] = []
failed = 0


@group.handler(DocumentUploaded)
def note(event: DocumentUploaded, ctx: Context) -> None:
    """Notes when an event was published and when it was done with."""
    global failed
    if read_stamp(event.size_bytes)[2] >= ctx.attempt:
        failed += 1
        if ctx.attempt > len(TIERS):
            meter.tick()
        raise Transient("busy")
    found.append((event.size_bytes, time.monotonic_ns() // 1000))
    meter.tick()


counted = ours.run(group, args, meter)
stamps = [(*read_stamp(number)[:2], came) for number, came in found]
waits = [(sent, came) for sent, key, came in stamps if key >= args.healthy]
begin = min(sent for sent, _, _ in stamps)
turned = inversions(number for number, _ in found)
report(
    meter,
    of=args.of,
    wrong=[f"{turned:,} inversions"] if turned else [],
    failed=failed,
    **counted,
    **centiles(waits, begin=begin, window=args.window, settle=SETTLE),
)
