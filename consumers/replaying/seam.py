"""Reads spans that begin in the archive and end in the log, as the client reads those of the log alone."""

from collections import deque
from collections.abc import Iterator, Sequence
from itertools import islice
from typing import Any

from confluent_kafka import Consumer, KafkaError, Message, TopicPartition

from offsetzero.consumers.replaying.spans import Span
from offsetzero.history.archive import Archive
from offsetzero.settings import Settings
from offsetzero.topics.names import Names
from offsetzero.topics.reading import LogRecord


def over_the_seam(log: Consumer, settings: Settings, spans: Sequence[Span]) -> Any:
    """What reads these spans: the client itself, unless one of them begins before the log does."""
    cut = [span for span in spans if span.records and span.first < span.low]
    return SeamReader(log, settings, cut) if cut else log


class SeamReader:
    """In the place of the client: what the log has no more comes from the archive, and all else from the log.

    A segment is fetched whole when its first record is wanted: this is a member of no group, so nobody waits for it.
    What the archive has not got either is passed over; who asks for spans says so before. One thread uses it.

    Args:
        log: the client; closed by `close`.
        settings: name the object store.
        cut: the spans that begin before the log does.
    """

    def __init__(self, log: Consumer, settings: Settings, cut: Sequence[Span]) -> None:
        self._log = log
        self._settings = settings
        names = Names(settings.kafka.namespace)
        self._cut = {(names.topic(span.topic), span.partition): span for span in cut}
        self._running: deque[tuple[tuple[str, int], Iterator[_Record]]] = deque()
        self._paused: set[tuple[str, int]] = set()

    def assign(self, parts: Sequence[TopicPartition]) -> None:
        """Read these from their offsets on, and nothing else."""
        mine = [one for one in parts if self._is_archived(one)]
        self._running = deque(((one.topic, one.partition), self._records(one)) for one in mine)
        self._paused.clear()
        self._log.assign([one for one in parts if not self._is_archived(one)])

    def unassign(self) -> None:
        """Read nothing."""
        self._running.clear()
        self._log.unassign()

    def pause(self, parts: Sequence[TopicPartition]) -> None:
        """Give no more of these."""
        self._paused |= {(one.topic, one.partition) for one in parts}
        self._log.pause(self._of_the_log(parts))

    def resume(self, parts: Sequence[TopicPartition]) -> None:
        """Give them again."""
        self._paused -= {(one.topic, one.partition) for one in parts}
        self._log.resume(self._of_the_log(parts))

    def poll(self, timeout: float) -> "_Record | Message | None":
        """The next record of any; None after `timeout` seconds without one."""
        return found[0] if (found := self._archived(1)) else self._log.poll(timeout)

    def consume(self, count: int, timeout: float) -> "Sequence[_Record | Message]":
        """The next records: of one partition of the archive, of another one at the next call; else of the log."""
        return self._archived(count) or self._log.consume(count, timeout)

    def close(self) -> None:
        """Close the client."""
        self._running.clear()
        self._log.close()

    # ---

    def _archived(self, count: int) -> "list[_Record]":
        for _ in range(len(self._running)):
            place, records = self._running[0]
            self._running.rotate(-1)
            if place in self._paused:
                continue
            if found := list(islice(records, count)):
                return found
            self._running.pop()  # it was the first one
            self._go_on(place)
        return []

    def _go_on(self, place: tuple[str, int]) -> None:
        """Behind the last offset of the archive the log goes on, where the span does."""
        span = self._cut[place]
        if span.end > span.low:
            self._log.incremental_assign([TopicPartition(*place, span.low)])

    def _records(self, part: TopicPartition) -> "Iterator[_Record]":
        place = part.topic, part.partition
        span, at = self._cut[place], part.offset
        archive, end = Archive(self._settings, span.topic), min(span.end, span.low)
        for segment in archive.segments(span.partition):
            if segment.end <= at or segment.first >= end:
                continue
            for one in archive.read(segment):
                if at <= one.offset < end:
                    yield _Record(*place, one)
            at = segment.end
        if span.end <= span.low:
            yield _Record(*place, None)

    def _is_archived(self, part: TopicPartition) -> bool:
        span = self._cut.get((part.topic, part.partition))
        return span is not None and part.offset < span.low

    def _of_the_log(self, parts: Sequence[TopicPartition]) -> list[TopicPartition]:
        running = {place for place, _ in self._running}
        return [one for one in parts if (one.topic, one.partition) not in running]


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
