"""Which offsets of a topic lie between two points in its log."""

from collections.abc import Mapping
from datetime import datetime
from typing import TypeAlias

from offsetzero.errors import ConfigurationError, TopicError
from offsetzero.settings import Settings
from offsetzero.topics import retained
from offsetzero.topics.points import Point

Spans: TypeAlias = Mapping[int, tuple[int, int]]
"""By partition, the first offset, and the one behind the last."""


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
