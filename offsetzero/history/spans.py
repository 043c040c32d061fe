"""Which part of a topic is meant: `--from` and `--to` as offsets, times, or how long ago."""

import re
from collections.abc import Mapping
from datetime import UTC, datetime, timedelta
from typing import Literal, TypeAlias

from offsetzero.clock import SYSTEM
from offsetzero.errors import ConfigurationError, TopicError
from offsetzero.settings import Settings
from offsetzero.topics import retained

Point: TypeAlias = Literal["earliest", "latest"] | int | datetime
"""An end of the log, an offset, or the first record that is not older than a time."""
Spans: TypeAlias = Mapping[int, tuple[int, int]]
"""By partition, the first offset, and the one behind the last."""
_AGO = re.compile(r"-(\d{1,6})([smhdw])", re.ASCII)
_UNITS = {"s": "seconds", "m": "minutes", "h": "hours", "d": "days", "w": "weeks"}


def parse(option: str, text: str) -> Point:
    """What an option was given.

    Raises:
        ConfigurationError: it is none of them.
    """
    if text == "earliest":
        return "earliest"
    if text == "latest":
        return "latest"
    if text.isdecimal():
        return int(text)
    if (ago := _AGO.fullmatch(text)) is not None:
        return SYSTEM.now() - timedelta(**{_UNITS[ago[2]]: int(ago[1])})
    try:
        time = datetime.fromisoformat(text)
    except ValueError:
        time = None
    if time is None or time.tzinfo is None:
        raise ConfigurationError(
            f"{option} {text}: give earliest, latest, an offset, a time with its zone, such as 2026-01-31T12:00:00Z, "
            "or how long ago: -30m, -2h, -7d"
        )
    return time.astimezone(UTC)


def resolve(settings: Settings, topic: str, first: Point, end: Point, partition: int | None = None) -> Spans:
    """The offsets that are meant, as the log is now; `end` is exclusive.

    Raises:
        ConfigurationError: an offset is given for a topic of many partitions, and no partition.
        TopicError: there is no such topic, partition or offset.
    """
    found = retained.bounds(settings, topic)
    if partition is not None and partition not in found:
        raise TopicError(f"topic {topic} has no partition {partition}; it has 0 to {len(found) - 1}")
    if partition is None and len(found) > 1 and (isinstance(first, int) or isinstance(end, int)):
        raise ConfigurationError(f"an offset is of one partition: say which of the {len(found)} with --partition")
    wanted = {number: one for number, one in found.items() if partition in (None, number)}
    starts, ends = _offsets(settings, topic, first, wanted), _offsets(settings, topic, end, wanted)
    return {number: (starts[number], max(starts[number], ends[number])) for number in sorted(wanted)}


def _offsets(
    settings: Settings, topic: str, point: Point, wanted: Mapping[int, retained.Retained]
) -> Mapping[int, int]:
    if isinstance(point, datetime):
        found = retained.at_time(settings, topic, point)
        return {
            number: min(found[number], one.end) if found[number] >= 0 else one.end for number, one in wanted.items()
        }
    if isinstance(point, int):
        for number, one in wanted.items():
            if not one.low <= point <= one.end:
                raise TopicError(f"{topic}/{number} has the offsets from {one.low} to {one.end}, not {point}")
        return dict.fromkeys(wanted, point)
    return {number: one.low if point == "earliest" else one.end for number, one in wanted.items()}
