"""How much of all there is in the proof of a rebuild: by day, and at night."""

import os
from dataclasses import dataclass

EVENTS = int(os.environ.get("OZ_TEST_REBUILD_EVENTS", "1000000"))


@dataclass(frozen=True, slots=True)
class Scale:
    """How much of all there is.

    Attributes:
        events: ordinary ones, before the rebuild.
        special: times as many of what has a document of its own.
        trouble: the share of the ordinary ones that fail at first.
        rate: events a second during the rebuild.
        live: so many of them; those behind come much later, so that the new one comes near on a busy machine, too.
        still: seconds that what is read may stand still.
        freezes: times, before it is plain that the switch will not succeed.
        after: events after it.
        tells: of one document of so many events are published.
        messages: webhooks, about.
        processes: that fill the new one, and members.
        seconds: for whatever is waited for.
    """

    events: int
    special: int
    trouble: float
    rate: float
    live: int
    still: int
    freezes: int
    after: int
    tells: int
    messages: int
    processes: int
    seconds: float


SMALL = Scale(300, 1, 0.03, 10, 600, 15, 6, 60, 1, 100, 1, 60)
LARGE = Scale(
    EVENTS,
    max(2, EVENTS // 30_000),
    0.02,
    50,
    10**9,
    60,
    10**9,
    200,
    max(1, EVENTS // 50_000),
    2_000,
    2,
    60 + EVENTS / 100,
)


def environment(scale: Scale, kind: str, dead: str) -> dict[str, str]:
    return {
        "SHELF_KIND": kind,
        "SHELF_ON_DEAD_LETTER": dead,
        "SHELF_TELLS": str(scale.tells),
        "OFFSETZERO_METRICS_PORT": "0",
        "OFFSETZERO_LOG_LEVEL": "ERROR",
        "OFFSETZERO_WEBHOOKS__ALLOW_PRIVATE_TARGETS": "true",
    }
