"""When a schedule fires: cron's five fields in a time zone, as instants. No I/O, and no clock.

cronsim reads the fields and finds what they match on a wall clock that never changes; the zone is applied here, because
cronsim's own way with zones loses or repeats fire times (docs/decisions/zones-are-applied-here.md). The rules are those
of Debian's cron(8): what names its minutes and hours fires once a day, at the end of the gap when the clock skips its
time, and the first time when the clock repeats it; what has a `*` at the beginning of the field of minutes or of hours
follows the clock on the wall, which leaves out what is skipped, and has twice what is repeated.
"""

from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from functools import lru_cache
from zoneinfo import ZoneInfo

from cronsim import CronSim, CronSimError

from offsetzero.errors import ConfigurationError

MAX_CHARACTERS = 200
_FIELDS = 5
_SECOND = timedelta(seconds=1)
_STRIDE = timedelta(days=1)  # no zone has changed its offset twice within a week since 1970
_WINDOW, _WIDER = timedelta(hours=1), 4
_NO_ZONES = ("localtime", "posixrules", "Factory", "right/", "posix/")  # files beside them, each machine's own
_FIRST = datetime(1970, 1, 1)  # noqa: DTZ001 - a wall clock


class Timetable:
    """The fire times of a cron text in a zone.

    Args:
        cron: five fields: minute, hour, day of month, month, day of week; see cronsim for what each may be.
        zone: name of the IANA time zone, such as `Europe/Berlin`.

    Raises:
        ConfigurationError: the text cannot be read, matches nothing in 50 years, or there is no such zone.
    """

    def __init__(self, cron: str, zone: str) -> None:
        self.cron = cron
        self._zone = _zone(zone)
        self._follows_the_wall = _read(cron)

    def after(self, instant: datetime) -> datetime | None:
        """The first fire time after an instant; None when there is none for 50 years.

        Args:
            instant: aware.

        Returns:
            In UTC, whole minutes on the wall.
        """
        return next(self.all_after(instant), None)

    def all_after(self, instant: datetime) -> Iterator[datetime]:
        """All fire times after an instant, in order, in UTC."""
        after = instant.astimezone(UTC)
        if not self._follows_the_wall:  # while the wall repeats itself, begin where it said the same for the first time
            after = after.astimezone(self._zone).replace(fold=0).astimezone(UTC)
        offset = self._offset(after)
        matches = self._matches(_wall(after, offset))
        while (matched := next(matches, None)) is not None:
            fires_at = (matched - offset).replace(tzinfo=UTC)
            change = self._change(after, fires_at, offset)
            if change is None:
                after = fires_at
            else:
                ends, offset = _wall(change, offset), self._offset(change)
                after, begins = change, _wall(change, offset)
                if self._follows_the_wall or matched >= begins:
                    again = begins if self._follows_the_wall else max(begins, ends)  # what is repeated has had its turn
                    matches = self._matches(again - _SECOND)
                    continue
                fires_at, matches = change, self._matches(begins)  # its time was skipped: as soon as it is over
            if fires_at > instant:
                yield fires_at

    def newest(self, after: datetime, until: datetime, most: int) -> list[datetime]:
        """The last fire times after one instant and until another, that one too; in order, so many at most.

        What was missed in years is not enumerated from its beginning: looks back in windows, each four times the last.
        """
        window = _WINDOW
        while True:
            begin = max(after, until - window)
            found: list[datetime] = []
            for one in self.all_after(begin):
                if one > until:
                    break
                found.append(one)
            if len(found) >= most or begin == after:
                return found[-most:]
            window *= _WIDER

    def _matches(self, wall: datetime) -> Iterator[datetime]:
        """What the text matches after a time on a wall clock that never changes."""
        return CronSim(self.cron, wall)

    def _offset(self, instant: datetime) -> timedelta:
        found = instant.astimezone(self._zone).utcoffset()
        assert found is not None  # noqa: S101 - of every zone
        return found

    def _change(self, after: datetime, until: datetime, offset: timedelta) -> datetime | None:
        """The first moment after one instant, and not after another, at which the offset is another one."""
        while after < until:
            ahead = min(after + _STRIDE, until)
            if self._offset(ahead) != offset:
                break
            after = ahead
        else:
            return None
        while ahead - after > _SECOND:
            middle = (after + (ahead - after) / 2).replace(microsecond=0)
            if middle <= after:
                middle += _SECOND
            if self._offset(middle) == offset:
                after = middle
            else:
                ahead = middle
        return ahead.replace(microsecond=0)


@lru_cache(maxsize=10_000)
def timetable(cron: str, zone: str) -> Timetable:
    """A timetable, made once. `forget` has zones read again.

    Raises:
        ConfigurationError: as `Timetable`.
    """
    return Timetable(cron, zone)


def forget() -> None:
    """Read the rules of zones anew when they are next asked for: the system's may have been renewed meanwhile."""
    timetable.cache_clear()
    ZoneInfo.clear_cache()


def _wall(instant: datetime, offset: timedelta) -> datetime:
    return instant.replace(tzinfo=None) + offset


def _zone(name: str) -> ZoneInfo:
    try:
        if name.startswith(_NO_ZONES):
            raise LookupError(name)
        return ZoneInfo(name)
    except (LookupError, ValueError, OSError):  # unknown; no name of a zone; the name of a folder
        raise ConfigurationError(f"zone {name[:60]!r}: no such time zone; give a name such as Europe/Berlin") from None


def _read(cron: str) -> bool:
    """Check a cron text; returns whether it follows the wall clock (as Debian's cron: by the first character)."""
    shown = f"cron {cron[:60]!r}"
    fields = cron.split()
    if len(cron) > MAX_CHARACTERS or len(fields) != _FIELDS:
        raise ConfigurationError(
            f"{shown}: five fields are needed, minute hour day-of-month month day-of-week, such as '30 2 * * 1-5'"
        )
    try:
        fires = next(CronSim(cron, _FIRST), None)
    except CronSimError as error:
        said = str(error).removeprefix("Bad ")
        raise ConfigurationError(f"{shown}: the field {said} cannot be read, or never comes") from None
    if fires is None:
        raise ConfigurationError(f"{shown}: no such day comes in 50 years")
    return fields[0].startswith("*") or fields[1].startswith("*")
