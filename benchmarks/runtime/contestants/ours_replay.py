"""offsetzero reading a long log from its beginning: the memory that it holds on the way, second by second."""

import os
import threading
from pathlib import Path

import ours
from terms import KEYS, Meter, arguments, report

from offsetzero.consumers.context import Context
from offsetzero.schemas.documents import DocumentUploaded

PAGE = os.sysconf("SC_PAGE_SIZE")
args = arguments()
group = ours.group(args)
meter = Meter(args.count)
last = [-1] * KEYS
inversions = 0
held: list[tuple[int, float]] = []
handled = 0


@group.handler(DocumentUploaded)
def follow(event: DocumentUploaded, ctx: Context) -> None:
    """Keeps the last event of each key, and counts those out of order: nothing that grows."""
    global inversions, handled
    number = event.size_bytes
    key = number % KEYS
    inversions += last[key] >= number
    last[key] = number
    handled += 1
    meter.tick()


def watch() -> None:
    """Note the resident memory once a second."""
    while not meter.finished.wait(1.0):
        pages = int(Path("/proc/self/statm").read_text().split()[1])
        held.append((handled, pages * PAGE / 2**20))


threading.Thread(target=watch, daemon=True).start()
counted = ours.run(group, args, meter)
report(
    meter,
    of=args.of,
    wrong=[f"{inversions:,} inversions"] if inversions else [],
    held=held,
    **counted,
)
