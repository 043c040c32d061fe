"""The simulated log: topics with partitions, offsets with gaps as compaction and transaction markers leave them."""

from bisect import bisect_left
from dataclasses import dataclass, field
from typing import TypeAlias

Place: TypeAlias = tuple[str, int]
Headers: TypeAlias = list[tuple[str, bytes | None]]


@dataclass(slots=True)
class Stored:
    """A record where it lies. `event_id` is what its headers say, for the laws and for the trace."""

    topic: str
    partition: int
    offset: int
    key: bytes | None
    value: bytes | None
    headers: Headers
    timestamp_ms: int
    event_id: str

    def __str__(self) -> str:
        return f"{self.topic}/{self.partition}@{self.offset} {self.event_id}"


@dataclass(slots=True)
class Partition:
    """Records by ascending offsets; `end` is the high watermark, past markers that nobody is given."""

    records: list[Stored] = field(default_factory=list)
    end: int = 0

    def index(self, offset: int) -> int:
        """Where in `records` the first one at or after an offset is."""
        return bisect_left(self.records, offset, key=lambda record: record.offset)


class Log:
    """Topics with one partition count."""

    def __init__(self, topics: list[str], partitions: int) -> None:
        self.partitions = partitions
        self.topics = topics
        self._logs = {(topic, number): Partition() for topic in topics for number in range(partitions)}

    def __getitem__(self, place: Place) -> Partition:
        return self._logs[place]

    def places(self, topics: list[str]) -> list[Place]:
        """Every partition of the topics."""
        return [(topic, number) for topic in topics for number in range(self.partitions)]

    def append(
        self, place: Place, key: bytes | None, value: bytes | None, headers: Headers, timestamp_ms: int
    ) -> Stored:
        """Append a record and return it where it lies."""
        partition = self._logs[place]
        named = [given.decode() for name, given in headers if name == "ce_id" and given is not None]
        record = Stored(
            *place, partition.end, key, value, headers, timestamp_ms, named[0] if named else f"{place}@{partition.end}"
        )
        partition.records.append(record)
        partition.end += 1
        return record

    def skip(self, place: Place, count: int) -> None:
        """Let offsets be taken by transaction markers, aborted records, or what compaction took away."""
        self._logs[place].end += count
