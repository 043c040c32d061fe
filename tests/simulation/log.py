"""The simulated log: topics with partitions, offsets with gaps as compaction and transaction markers leave them."""

from bisect import bisect_left
from dataclasses import dataclass, field
from typing import TypeAlias

Place: TypeAlias = tuple[str, int]
Headers: TypeAlias = list[tuple[str, bytes | None]]


@dataclass(slots=True, eq=False)
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

    @classmethod
    def of(cls, place: Place, key: bytes | None, value: bytes | None, headers: Headers, timestamp_ms: int) -> "Stored":
        """A record that is nowhere yet."""
        return cls(*place, -1, key, value, headers, timestamp_ms, header(headers, "ce_id"))

    def __str__(self) -> str:
        return f"{self.topic}/{self.partition}@{self.offset} {self.event_id}"


@dataclass(slots=True)
class Partition:
    """Records by ascending offsets; `end` is the high watermark, past markers that nobody is given."""

    records: list[Stored] = field(default_factory=list)
    end: int = 0
    _held: dict[object, list[Stored]] = field(default_factory=dict)  # of open transactions

    @property
    def stable(self) -> int:
        """The end for who reads what is committed: the first record of an open transaction."""
        return min((records[0].offset for records in self._held.values()), default=self.end)

    def put(self, record: Stored) -> None:
        """Append a record."""
        record.offset = self.end
        self.records.append(record)
        self.end += 1

    def hold(self, transaction: object, record: Stored) -> None:
        """Append a record of an open transaction."""
        self.put(record)
        self._held.setdefault(transaction, []).append(record)

    def settle(self, transaction: object, *, keep: bool) -> None:
        """Write the marker that ends a transaction."""
        gone = self._held.pop(transaction)
        if not keep:
            self.records = [record for record in self.records if record not in gone]
        self.end += 1

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

    def append(self, record: Stored) -> None:
        """Append a record, which finds its offset."""
        self._logs[record.topic, record.partition].put(record)

    def skip(self, place: Place, count: int) -> None:
        """Let offsets be taken by transaction markers, aborted records, or what compaction took away."""
        self._logs[place].end += count


def header(headers: Headers, name: str) -> str:
    """A header's value as text, empty when it is not there."""
    return next((value.decode() for found, value in headers if found == name and value is not None), "")
