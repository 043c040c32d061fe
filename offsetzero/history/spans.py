"""Which offsets of a topic lie between two points in its log."""

from collections.abc import Mapping
from typing import TypeAlias

from offsetzero.errors import ConfigurationError, TopicError
from offsetzero.settings import Settings
from offsetzero.topics import retained
from offsetzero.topics.admin import client
from offsetzero.topics.names import Names
from offsetzero.topics.points import Ends, Point

Spans: TypeAlias = Mapping[int, tuple[int, int]]
"""By partition, the first offset, and the one behind the last."""


def resolve(settings: Settings, topic: str, first: Point, end: Point, partition: int | None = None) -> Spans:
    """The offsets that are meant, as the log is now; `end` is exclusive.

    Raises:
        ConfigurationError: an offset is given for a topic of many partitions, and no partition.
        TopicError: there is no such topic, partition or offset.
    """
    count = retained.existing(settings, topic)
    if partition is not None and not 0 <= partition < count:
        raise TopicError(f"topic {topic} has no partition {partition}; it has 0 to {count - 1}")
    if partition is None and count > 1 and (isinstance(first, int) or isinstance(end, int)):
        raise ConfigurationError(f"an offset is of one partition: say which of the {count} with --partition")
    places = [(topic, number) for number in (range(count) if partition is None else (partition,))]
    log = Ends(client(settings), Names(settings.kafka.namespace), places)
    starts, ends = log.resolve("--from", first), log.resolve("--to", end)
    return {place[1]: (starts[place], max(starts[place], ends[place])) for place in places}
