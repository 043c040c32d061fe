"""Looks into a topic: the history of a key, and its last records."""

import heapq
from collections.abc import Callable, Iterator
from dataclasses import dataclass

from offsetzero.history.decoding import Decoded, Decoder
from offsetzero.settings import Settings
from offsetzero.topics import cluster, retained
from offsetzero.topics.partitioner import partition_of
from offsetzero.topics.reading import LogRecord, TopicReader

_WINDOW = 500
_GROWTH = 4


@dataclass(frozen=True, slots=True)
class Seen:
    """A record, and what is in it."""

    record: LogRecord
    decoded: Decoded


def history(settings: Settings, topic: str, key: bytes, *, everywhere: bool = False) -> Iterator[Seen]:
    """The records of a key that are retained, in their order: of the partition where producers of ours put it.

    Args:
        settings: name the cluster.
        topic: by our name.
        key: as it is in the records.
        everywhere: look into all partitions, for keys of producers that choose another one.

    Raises:
        TopicError: there is no such topic, or the broker does not answer.
    """
    bounds = retained.bounds(settings, topic)
    home = partition_of(key, len(bounds))
    spans = {number: (one.low, one.end) for number, one in bounds.items() if everywhere or number == home}
    with TopicReader(settings) as reader, Decoder(settings) as decoder:
        for batch in reader.read(topic, spans):
            for one in batch:
                if one.key == key:
                    yield Seen(one, decoder.decode(one))


def is_compacted(settings: Settings, topic: str) -> bool:
    """Whether the broker removes records that a later one of their key has replaced."""
    return "compact" in cluster.read(settings, [topic])[topic].config.get("cleanup.policy", "")


def last(
    settings: Settings, topic: str, count: int, wanted: Callable[[Decoded], bool] | None = None
) -> tuple[list[Seen], dict[int, int]]:
    """The last records of a topic that are wanted, by their times, and the offsets where it ended.

    Args:
        settings: name the cluster.
        topic: by our name.
        count: at most so many.
        wanted: says which; by default all. Rare ones are looked for further and further back.

    Raises:
        TopicError: there is no such topic, or the broker does not answer.
    """
    bounds, found = retained.bounds(settings, topic), list[Seen]()
    with TopicReader(settings) as reader, Decoder(settings) as decoder:
        for number, one in bounds.items():
            mine, end, window = list[Seen](), one.end, max(_WINDOW, count)
            while len(mine) < count and end > one.low:
                start = max(one.low, end - window)
                batches = reader.read(topic, {number: (start, end)})
                seen = (Seen(it, decoder.decode(it)) for batch in batches for it in batch)
                mine = [it for it in seen if wanted is None or wanted(it.decoded)][-count:] + mine
                end, window = start, window * _GROWTH
            found += mine[-count:] if count else []
    newest = heapq.nlargest(count, found, key=_by_time)
    return newest[::-1], {number: one.end for number, one in bounds.items()}


def _by_time(seen: Seen) -> tuple[int, int, int]:
    return seen.record.timestamp_ms, seen.record.partition, seen.record.offset


def follow(
    settings: Settings, topic: str, starts: dict[int, int], wanted: Callable[[Decoded], bool] | None = None
) -> Iterator[Seen]:
    """What comes from these offsets on, without an end.

    Raises:
        TopicError: the broker refuses, or deleted what was to be read.
    """
    with TopicReader(settings) as reader, Decoder(settings) as decoder:
        for batch in reader.follow(topic, starts):
            for one in batch:
                decoded = decoder.decode(one)
                if wanted is None or wanted(decoded):
                    yield Seen(one, decoded)
