"""Reads a group's dead-letter topic."""

from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import replace
from types import TracebackType
from typing import Self

from offsetzero.errors import TopicError
from offsetzero.retry import pointers
from offsetzero.retry.letter import DeadLetter, of_message, of_record
from offsetzero.retry.pointers import PointerLost
from offsetzero.settings import Settings
from offsetzero.topics import admin, offsets
from offsetzero.topics.catalogue import DLQ
from offsetzero.topics.names import Names
from offsetzero.topics.points import Ends
from offsetzero.topics.reading import LogRecord, RecordsDeleted, TopicReader

__all__ = ["DeadLetter", "LetterReader", "groups", "of_message", "partitions", "read"]

SKIP = 1_000
"""Offsets in a row that are not wanted, from which on it is cheaper to begin anew behind them."""


class LetterReader:
    """Reads dead letters of any group; a context manager. What retention has taken is passed over.

    Args:
        settings: name the cluster.
    """

    def __init__(self, settings: Settings) -> None:
        self._settings = settings
        self._names = Names(settings.kafka.namespace)
        self._admin = admin.client(settings)
        self._reader = TopicReader(settings)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._reader.__exit__(kind, error, trace)

    def read(self, group: str, spans: Mapping[int, tuple[int, int]]) -> Iterator[DeadLetter]:
        """The dead letters of a group between offsets, whatever comes meanwhile.

        Args:
            group: the group's name.
            spans: by partition, the first offset, and the one behind the last.

        Raises:
            TopicError: the broker refuses, or sends nothing for too long.
        """
        for record in self._read(group, spans):
            yield self._letter(group, record)

    def topic_id(self, group: str) -> str:
        """The id that a group's dead-letter topic has now; empty when there is none.

        Raises:
            TopicError: the cluster does not answer.
        """
        topic = f"{group}.{DLQ}"
        found = offsets.describe(admin.client(self._settings), self._names, [topic])
        return found[topic].id if topic in found else ""

    def spans(self, group: str, partitions: Iterable[int]) -> dict[int, tuple[int, int]]:
        """Where partitions of a group's dead letters begin and end now.

        Raises:
            TopicError: the broker does not answer.
        """
        places = [(f"{group}.{DLQ}", number) for number in partitions]
        log = Ends(self._admin, self._names, places)
        return {place[1]: (log.low[place], log.end[place]) for place in places}

    def fetch(self, group: str, places: Iterable[tuple[int, int]]) -> dict[tuple[int, int], DeadLetter]:
        """The dead letters at places (partition and offset); those that the log does not have any more are left out.

        A pointer is replaced by the record that it stands for, while the source has it.

        Raises:
            TopicError: as `read`.
        """
        found = (self._whole(self._letter(group, record)) for record in self._at(group, places))
        return {(letter.partition, letter.offset): letter for letter in found}

    def count_whole(self, group: str, places: Iterable[tuple[int, int]], edited: Collection[tuple[int, int]]) -> int:
        """How many of the dead letters at places have an event to send (see `DeadLetter.is_whole`).

        None is kept, and only pointers are looked at more closely.

        Args:
            group: the group's name.
            places: partition and offset.
            edited: of those that operators have edited.

        Raises:
            TopicError: as `read`.
        """
        count = 0
        for record in self._at(group, places):
            count += pointers.read(record.headers) is None or self._whole(self._letter(group, record)).is_whole(
                edited=(record.partition, record.offset) in edited
            )
        return count

    def _at(self, group: str, places: Iterable[tuple[int, int]]) -> Iterator[LogRecord]:
        wanted = set(places)
        for spans in rounds(wanted):
            for record in self._read(group, spans):
                if (record.partition, record.offset) in wanted:
                    yield record

    def _read(self, group: str, spans: Mapping[int, tuple[int, int]]) -> Iterator[LogRecord]:
        left, topic = dict(spans), f"{group}.{DLQ}"
        while left:
            try:
                for batch in self._reader.read(topic, left):
                    for one in batch:
                        left[one.partition] = (one.offset + 1, left[one.partition][1])
                        yield one
                return
            except RecordsDeleted as gone:
                (first, end), low = left.pop(gone.partition), self.spans(group, [gone.partition])[gone.partition][0]
                if first < low < end:
                    left[gone.partition] = (low, end)

    def _letter(self, group: str, record: LogRecord) -> DeadLetter:
        return of_record(group, self._names.topic(f"{group}.{DLQ}"), record)

    def _whole(self, letter: DeadLetter) -> DeadLetter:
        if letter.pointer is None:
            return letter
        try:
            record = pointers.resolve(self._settings, letter.pointer, letter.hop.origin)
        except PointerLost:
            return letter
        return replace(letter, key=record.key, value=record.value, headers=record.headers, pointer=None)


def rounds(places: Iterable[tuple[int, int]]) -> list[dict[int, tuple[int, int]]]:
    """What to read for places: spans of offsets, in each round at most one of a partition."""
    found: dict[int, list[tuple[int, int]]] = {}
    for partition, offset in sorted(places):
        spans = found.setdefault(partition, [])
        if spans and offset - spans[-1][1] < SKIP:
            spans[-1] = (spans[-1][0], offset + 1)
        else:
            spans.append((offset, offset + 1))
    most = max(map(len, found.values()), default=0)
    return [{number: spans[at] for number, spans in found.items() if at < len(spans)} for at in range(most)]


def read(settings: Settings, group: str) -> Iterator[DeadLetter]:
    """All dead letters of a group that are retained, partition by partition, from oldest to newest.

    Args:
        settings: names the cluster.
        group: the group's name.

    Raises:
        TopicError: the group has no dead-letter topic, or the broker does not answer.
    """
    numbers = partitions(settings, group)
    with LetterReader(settings) as reader:
        yield from reader.read(group, reader.spans(group, numbers))


def partitions(settings: Settings, group: str) -> list[int]:
    """The partitions of a group's dead-letter topic.

    Raises:
        TopicError: it has none, or the broker does not answer.
    """
    topic = Names(settings.kafka.namespace).topic(f"{group}.{DLQ}")
    found = admin.metadata(admin.client(settings), settings, topic).topics[topic]
    if found.error is not None:
        raise TopicError(
            f"there is no group {group}: it has no topic {topic} ({found.error.str()}); "
            "`offsetzero dlq groups` shows the groups that have dead letters"
        )
    return sorted(found.partitions)


def groups(settings: Settings) -> list[str]:
    """The groups of our namespace that have a dead-letter topic, by name.

    Raises:
        TopicError: the broker does not answer.
    """
    names = Names(settings.kafka.namespace)
    found = admin.metadata(admin.client(settings), settings).topics
    ours = (names.strip(topic) for topic in found)
    suffix = f".{DLQ}"
    return sorted(name.removesuffix(suffix) for name in ours if name is not None and name.endswith(suffix))
