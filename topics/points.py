"""Points in a log, as people write them: an end, an offset, a time, or how long ago; and the offsets that they are."""

import re
from collections.abc import Mapping, Sequence
from datetime import datetime, timedelta
from typing import Literal, TypeAlias

from confluent_kafka import IsolationLevel
from confluent_kafka.admin import AdminClient, OffsetSpec

from offsetzero.errors import ConfigurationError, TopicError
from offsetzero.topics import offsets
from offsetzero.topics.names import Names

Point: TypeAlias = Literal["earliest", "latest"] | int | datetime
"""An end of the log, an offset, or the first record that is not older than a time."""
_SKEW = timedelta(minutes=5)  # of the clocks of who writes records
_AGO = re.compile(r"(\d{1,6})([smhdw])", re.ASCII)
_UNITS = {"s": "seconds", "m": "minutes", "h": "hours", "d": "days", "w": "weeks"}


def parse(text: str) -> Point | None:
    """`earliest`, `latest`, an offset, or a time with its zone; None when it is none of them."""
    if text == "earliest":
        return "earliest"
    if text == "latest":
        return "latest"
    if text.isdecimal():
        return int(text)
    return time(text)


def parse_with_ago(option: str, text: str, now: datetime) -> Point:
    """As `parse`, or how long ago: `-2h`.

    Raises:
        ConfigurationError: it is none of them, or a time that has not come yet; with the option's name.
    """
    point = ago(text[1:], now) if text.startswith("-") else parse(text)
    if point is None:
        raise ConfigurationError(
            f"{option} {text}: give earliest, latest, an offset, a time with its zone, such as 2026-01-31T12:00:00Z, or"
            " how long ago, such as -30m, -2h, -7d"
        )
    if isinstance(point, datetime) and point > now + _SKEW:
        raise ConfigurationError(f"{option} {text}: that time has not come yet; the end of the log is `latest`")
    return point


def time(text: str) -> datetime | None:
    """A time of ISO 8601 with its zone; None for anything else."""
    try:
        found = datetime.fromisoformat(text)
    except ValueError:
        return None
    return found if found.tzinfo is not None else None


def ago(text: str, now: datetime) -> datetime | None:
    """The time that is `30m`, `2h` or `7d` before now; None for anything else."""
    found = _AGO.fullmatch(text)
    return now - timedelta(**{_UNITS[found[2]]: int(found[1])}) if found is not None else None


class Ends:
    """The ends of some partitions as they are now, and what points in the log are in each of them.

    A partition ends at its last stable offset: before the first record of a transaction that is open (KIP-98). That is
    how far everybody here reads, because all read committed records only. At the high watermark, behind it, a group
    would be set past records that it has not seen, once they are committed, and who reads up to there would wait.

    Attributes:
        low: the first offset of each partition.
        end: the one behind the last that can be read.

    Args:
        admin: asked.
        names: of topics on the cluster.
        places: topics, by our names, with numbers of partitions.

    Raises:
        TopicError: the cluster does not answer.
    """

    def __init__(self, admin: AdminClient, names: Names, places: Sequence[tuple[str, int]]) -> None:
        self._admin = admin
        self._names = names
        self._places = places
        self.low = offsets.ends(admin, names, places, OffsetSpec.earliest())  # type: ignore[no-untyped-call]
        latest = self._at(OffsetSpec.latest())  # type: ignore[no-untyped-call]
        self.end = {place: max(self.low[place], offset) for place, offset in latest.items()}

    def resolve(self, option: str, point: Point) -> Mapping[tuple[str, int], int]:
        """The offset of a point in each partition; for a time after the last record that behind it.

        Raises:
            ConfigurationError: an offset, and more than one partition; with the option's name.
            TopicError: the log does not reach to that offset, or the cluster does not answer.
        """
        if isinstance(point, datetime):
            found = self._at(OffsetSpec.for_timestamp(max(0, round(point.timestamp() * 1000))))
            return {place: min(at, self.end[place]) if at >= 0 else self.end[place] for place, at in found.items()}
        if not isinstance(point, int):
            return self.low if point == "earliest" else self.end
        if len(self._places) != 1:
            raise ConfigurationError(f"{option} OFFSET: say of which partition, with --topic and --partition")
        (place,) = self._places
        if not self.low[place] <= point <= self.end[place]:
            raise TopicError(
                f"{place[0]}/{place[1]} has the offsets from {self.low[place]} to {self.end[place]}, not {point}"
            )
        return {place: point}

    def _at(self, spec: OffsetSpec) -> dict[tuple[str, int], int]:
        committed = IsolationLevel.READ_COMMITTED
        return offsets.ends(self._admin, self._names, self._places, spec, isolation=committed)
