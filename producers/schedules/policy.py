"""What a schedule has to do now: decided by its timetable, what is done, and the time. No I/O."""

from dataclasses import dataclass
from datetime import datetime, timedelta
from enum import StrEnum

from offsetzero.producers.schedules.timetable import Timetable

LATE = timedelta(seconds=60)
"""A fire time that is older was missed, not only late."""
MOST = 100
"""Fire times that are made up for by the policy `all`: the last ones."""


class CatchUp(StrEnum):
    """What becomes of fire times that were missed, because no scheduler ran or the machine slept."""

    ONCE = "once"
    SKIP = "skip"
    ALL = "all"


@dataclass(frozen=True, slots=True)
class Decision:
    """What to do.

    Attributes:
        fires: fire times to be acted upon now, in order.
        missed_since: the oldest fire time that is not, and that `fires` stand for, if they do; None when there is none.
        done_until: up to when nothing is to be decided any more.
        next_at: when to look again; None when it never fires again.
    """

    fires: tuple[datetime, ...]
    missed_since: datetime | None
    done_until: datetime
    next_at: datetime | None


def decide(table: Timetable, done_until: datetime, now: datetime, catch_up: CatchUp) -> Decision:
    """Decide on all fire times after `done_until`, until now.

    A clock that is behind `done_until` was set back: what comes then is decided again. That some of it was done
    before is found by the caller, who keeps what was done by its fire time.

    Args:
        table: when it fires.
        done_until: what the last decision says.
        now: the time.
        catch_up: what becomes of fire times that were missed.
    """
    if now < done_until:
        return Decision((), None, now, table.after(now))
    first = table.after(done_until)
    if first is None or first > now:  # looked at too early: by the rules of another time, or for a new zone's sake
        return Decision((), None, done_until, first)
    if catch_up is CatchUp.SKIP:
        fires = table.newest(max(done_until, now - LATE), now, MOST)
    else:
        fires = table.newest(done_until, now, 1 if catch_up is CatchUp.ONCE else MOST)
    missed_since = first if not fires or first < fires[0] else None
    return Decision(tuple(fires), missed_since, now, table.after(now))
