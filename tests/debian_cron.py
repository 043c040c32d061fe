"""What Debian's cron would do: its loop, minute by minute, as its source has it (`main` and `find_jobs` of cron.c)."""

from datetime import UTC, datetime, timedelta
from functools import lru_cache
from zoneinfo import ZoneInfo

from cronsim import CronSim

_MINUTE = timedelta(minutes=1)
_EPOCH = datetime(1970, 1, 1)  # noqa: DTZ001 - a wall clock


def debian(cron: str, zone: str, begin: datetime, end: datetime) -> list[datetime]:
    """The minutes, after one and until another, in which cron starts a job, on a machine whose zone that is."""
    wild = any(field.startswith("*") for field in cron.split()[:2])
    where, fired = ZoneInfo(zone), []
    virtual = _wall(begin, where)
    at = begin
    while at < end:
        at += _MINUTE
        clock = _wall(at, where)
        jump = clock - virtual
        if jump in range(1, 6):  # the next minute, or a few of them: all jobs of each
            minutes, virtual = range(virtual + 1, clock + 1), clock
        elif jump in range(6, 181):  # summer time begins: wild ones of now, others of all that was skipped
            minutes, virtual = [clock] if wild else range(virtual + 1, clock + 1), clock
        elif jump in range(-179, 1):  # it ends: only wild ones, until the clock says what it said before
            minutes = [clock] if wild else []
        else:  # the clock was corrected
            minutes, virtual = [clock], clock
        fired += [at for minute in minutes if _matches(cron, minute)]
    return fired


def _wall(at: datetime, zone: ZoneInfo) -> int:
    offset = at.astimezone(zone).utcoffset()
    assert offset is not None
    return (at.astimezone(UTC).replace(tzinfo=None) + offset - _EPOCH) // _MINUTE


@lru_cache(maxsize=100_000)
def _matches(cron: str, minute: int) -> bool:
    wall = _EPOCH + minute * _MINUTE
    return next(CronSim(cron, wall - timedelta(seconds=1)), None) == wall
