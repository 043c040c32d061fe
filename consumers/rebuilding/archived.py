"""What only the archive has of a group's sources: read into a generation before its members read the log."""

from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import islice
from typing import Any

import psycopg
from confluent_kafka import Consumer, KafkaError, Message, TopicPartition

from offsetzero.consumers.group import ConsumerGroup
from offsetzero.consumers.replaying.job import Progress, SideJob
from offsetzero.consumers.replaying.looking import Wanted
from offsetzero.consumers.replaying.spans import Span
from offsetzero.generation import Generation
from offsetzero.history.archive import Archive
from offsetzero.history.missing import gaps
from offsetzero.settings import Settings
from offsetzero.store import positions
from offsetzero.store.positions import Position
from offsetzero.store.script import run
from offsetzero.topics import retained
from offsetzero.topics.names import Names
from offsetzero.topics.reading import LogRecord


def find(
    settings: Settings, connection: psycopg.Connection, generation: Generation, topics: Iterable[str]
) -> list[Span]:
    """The offsets that a generation has not read, and the log has no more, of partitions of which the archive has any.

    A new generation does without what neither of them has, which was said before it was begun. One that has read the
    log before and was overtaken by its retention does not: then nothing is found, and its members say what is gone.

    Args:
        settings: name the cluster and the object store.
        connection: to the database; in autocommit.
        generation: of the group.
        topics: its sources.

    Raises:
        TopicError: a topic is missing, or the cluster does not answer.
        HistoryError: a manifest cannot be read.
    """
    at = run(connection, positions.of_generation(generation))
    found = []
    for topic in topics:
        archive: Archive | None = None
        for number, one in sorted(retained.bounds(settings, topic).items()):
            begun = at.get((topic, number))
            first = begun.offset if begun is not None else 0
            if first >= one.low:
                continue
            archive = archive or Archive(settings, topic)
            kept = [(it.first, it.end) for it in archive.segments(number)]
            holes = [hole for hole in gaps(one.low, kept) if hole[1] > first]
            if holes and (begun is not None or holes == [(0, one.low)]):
                continue
            found.append(Span(topic, number, archive.topic_id, first, one.low, None, one.low))
    return found


def have_read(connection: psycopg.Connection, generation: Generation, spans: Sequence[Span]) -> None:
    """Note that a generation, which has no members, is behind these."""
    reached = {span.place: Position(span.topic_id, span.end) for span in spans}
    run(connection, positions.replace(generation, reached))


class ArchiveJob(SideJob):
    """Runs the handlers of a group over spans of the archive, and ends. Begun again, it does what was not done.

    What fails goes to the retry topics of the generation, for its members. Of what they have to do nothing is lost when
    the job is interrupted, for no position is written before its end.

    Args:
        group: the declaration.
        settings: of this process.
        spans: what is read.
        generation: that is filled.
        progress: called several times a second.
    """

    def __init__(
        self,
        group: ConsumerGroup,
        settings: Settings,
        spans: Sequence[Span],
        generation: Generation,
        progress: Callable[[Progress], None],
    ) -> None:
        super().__init__(group, settings, spans, Wanted(), progress, generation=generation.number)

    def _make_reader(self) -> Any:
        return _Reader(super()._make_reader(), self._settings, self._names, self._spans)


class _Record:
    """A record of the archive, or the end of a span, as the client would give it."""

    def __init__(self, topic: str, partition: int, one: LogRecord | None) -> None:
        self._place = topic, partition
        self._one = one

    def topic(self) -> str:
        return self._place[0]

    def partition(self) -> int:
        return self._place[1]

    def error(self) -> KafkaError | None:
        return KafkaError(KafkaError._PARTITION_EOF) if self._one is None else None

    def offset(self) -> int:
        return self._record.offset

    def key(self) -> bytes | None:
        return self._record.key

    def value(self) -> bytes | None:
        return self._record.value

    def headers(self) -> list[tuple[str, bytes | None]]:
        return self._record.headers

    def timestamp(self) -> tuple[int, int]:
        return 1, self._record.timestamp_ms

    @property
    def _record(self) -> LogRecord:
        assert self._one is not None  # noqa: S101 - what is no error is a record
        return self._one


class _Reader:
    """In the place of the client: sources come from the archive, retry topics from the log.

    A segment is fetched whole when its first record is wanted: this is a member of no group, so nobody waits for it.
    """

    def __init__(self, log: Consumer, settings: Settings, names: Names, spans: Sequence[Span]) -> None:
        self._log = log
        self._settings = settings
        self._spans = {(names.topic(span.topic), span.partition): span for span in spans}
        self._running: deque[tuple[tuple[str, int], Iterator[_Record]]] = deque()
        self._paused: set[tuple[str, int]] = set()

    def assign(self, parts: Sequence[TopicPartition]) -> None:
        mine = [(one.topic, one.partition) for one in parts if (one.topic, one.partition) in self._spans]
        self._running = deque((place, self._records(place)) for place in mine)
        self._log.assign([one for one in parts if (one.topic, one.partition) not in self._spans])

    def pause(self, parts: Sequence[TopicPartition]) -> None:
        self._paused |= {(one.topic, one.partition) for one in parts if (one.topic, one.partition) in self._spans}
        self._log.pause([one for one in parts if (one.topic, one.partition) not in self._spans])

    def resume(self, parts: Sequence[TopicPartition]) -> None:
        self._paused -= {(one.topic, one.partition) for one in parts}
        self._log.resume([one for one in parts if (one.topic, one.partition) not in self._spans])

    def poll(self, timeout: float) -> "_Record | Message | None":
        found = self.consume(1, 0)
        return found[0] if found else self._log.poll(timeout)

    def consume(self, count: int, _timeout: float) -> list[_Record]:
        """The next records of one partition; of another one at the next call."""
        for _ in range(len(self._running)):
            place, records = self._running[0]
            self._running.rotate(-1)
            if place not in self._paused and (found := list(islice(records, count))):
                return found
        return []

    def close(self) -> None:
        self._log.close()

    def _records(self, place: tuple[str, int]) -> Iterator[_Record]:
        span = self._spans[place]
        archive, at = Archive(self._settings, span.topic), span.first
        for segment in archive.segments(span.partition):
            if segment.end <= at or segment.first >= span.end:
                continue
            for one in archive.read(segment):
                if at <= one.offset < span.end:
                    yield _Record(*place, one)
            at = segment.end
        yield _Record(*place, None)
