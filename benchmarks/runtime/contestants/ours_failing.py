"""offsetzero under a steady load, some of which fails in every second window: how long other keys wait."""

import statistics
import time
from collections import defaultdict

import ours
from terms import Meter, arguments, read_stamp, report

from offsetzero import Transient
from offsetzero.consumers.context import Context
from offsetzero.retry.policy import Tier
from offsetzero.schemas.documents import DocumentUploaded

WARM = 2  # windows, one of each kind
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
stamps = [(*read_stamp(number), came) for number, came in found]
begin = min(sent for sent, _, _, _ in stamps)
waits: dict[int, list[float]] = defaultdict(list)
last: dict[int, int] = {}
inversions = 0
for sent, key, _, came in stamps:
    inversions += last.get(key, 0) > sent
    last[key] = max(sent, last.get(key, 0))
    window, into = divmod((sent - begin) / 1e6, args.window)
    if key >= args.healthy and window >= WARM and into >= SETTLE:
        waits[int(window)].append((came - sent) / 1000)
# The median over windows of each window's centile: a hiccup of the machine in one window decides nothing.
report(
    meter,
    of=args.of,
    wrong=[f"{inversions:,} inversions"] if inversions else [],
    failed=failed,
    **counted,
    **{
        f"p{at}_{name}": statistics.median(
            statistics.quantiles(those, n=100)[at - 1] for window, those in waits.items() if window % 2 == kind
        )
        for kind, name in enumerate(("without", "with"))
        for at in (50, 99)
    },
)
