"""Reads topics between offsets, without a group: nothing is joined, nothing is committed."""

from collections.abc import Iterator, Mapping
from types import TracebackType
from typing import NamedTuple, Self

from confluent_kafka import Consumer, KafkaError, Message, TopicPartition

from offsetzero.client_log import LOGGER, watched
from offsetzero.clock import SYSTEM
from offsetzero.errors import TopicError
from offsetzero.settings import Settings
from offsetzero.topics.names import Names

STALL_SECONDS = 30.0
_POLL_SECONDS = 0.5
_BATCH = 2_000
_GONE = frozenset({KafkaError._AUTO_OFFSET_RESET, KafkaError.OFFSET_OUT_OF_RANGE})


class LogRecord(NamedTuple):
    """A record as the log has it, undecoded. `timestamp_ms` is in milliseconds since 1970.

    A header whose name is not UTF-8 makes the client refuse them all: then there are none, and `is_whole` is False.
    """

    partition: int
    offset: int
    timestamp_ms: int
    key: bytes | None
    value: bytes | None
    headers: list[tuple[str, bytes | None]]
    is_whole: bool = True


class RecordsDeleted(TopicError):
    """What was to be read next is no longer in the log: retention, or DeleteRecords, was faster.

    `partition` and `offset` say where it was.
    """

    def __init__(self, message: str, partition: int, offset: int) -> None:
        super().__init__(message)
        self.partition = partition
        self.offset = offset


class TopicReader:
    """A consumer for looking at a topic; a context manager. One thread uses it.

    It sees what `read_committed` sees: neither records of transactions that were aborted or are open, nor markers.

    Args:
        settings: name the cluster.
    """

    def __init__(self, settings: Settings) -> None:
        self._names = Names(settings.kafka.namespace)
        config = {
            "fetch.wait.max.ms": 50,
            "queued.max.messages.kbytes": 4 * 1024,  # per partition: the bound of the memory
            "queued.min.messages": 5_000,  # what is to be fetched ahead of small records, for which that bound is far
            "fetch.message.max.bytes": 512 * 1024,
            # What fills these bounds is read in much less than the second that a partition then rests by default: of
            # 8 s for 100,000 small records 5 s were spent waiting.
            "fetch.queue.backoff.ms": 10,
            **settings.kafka.client_config(),
            "group.id": self._names.group("log.reader"),  # never joined
            "group.protocol": "classic",
            "enable.auto.commit": False,
            "enable.auto.offset.store": False,
            "enable.partition.eof": True,
            "auto.offset.reset": "error",
            "isolation.level": "read_committed",
        }
        self._consumer = Consumer(watched(config), logger=LOGGER)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._consumer.close()

    def read(self, topic: str, spans: Mapping[int, tuple[int, int]]) -> Iterator[list[LogRecord]]:
        """The records between offsets, in batches, those of a partition in order; ends at the last of them.

        Args:
            topic: by our name.
            spans: by partition, the first offset, and the one behind the last: at most the last stable offset of now.

        Raises:
            RecordsDeleted: records of a span were deleted before they were read.
            TopicError: the broker refuses, or sends nothing for too long.
        """
        left = {partition: end for partition, (first, end) in spans.items() if first < end}
        next_ = {partition: spans[partition][0] for partition in left}
        self._consumer.assign([TopicPartition(self._names.topic(topic), one, at) for one, at in next_.items()])
        try:
            while left:
                found: list[LogRecord] = []
                for message in self._fetch(topic):
                    partition, offset = message.partition() or 0, message.offset() or 0
                    if partition not in left:
                        continue
                    if (error := message.error()) is not None and error.code() in _GONE:
                        if found:
                            yield found
                        raise _deleted(topic, partition, next_[partition])
                    if error is None and offset < left[partition]:
                        found.append(of_message(message))
                        next_[partition] = offset + 1
                    # the end of the partition, or of the span: what the client has fetched beyond it is let go
                    if error is not None or offset + 1 >= left[partition]:
                        del left[partition]
                        self._consumer.incremental_unassign([TopicPartition(self._names.topic(topic), partition)])
                if found:
                    yield found
        finally:
            self._consumer.unassign()

    def follow(self, topic: str, starts: Mapping[int, int]) -> Iterator[list[LogRecord]]:
        """What comes from these offsets on, without an end; an empty list now and then, to look up.

        Raises:
            RecordsDeleted, TopicError: as `read`, but however long nothing comes.
        """
        self._consumer.assign([TopicPartition(self._names.topic(topic), one, at) for one, at in starts.items()])
        next_ = dict(starts)
        while True:
            found = []
            for message in self._consumer.consume(_BATCH, _POLL_SECONDS):
                partition, error = message.partition() or 0, message.error()
                if error is None:
                    found.append(of_message(message))
                    next_[partition] = found[-1].offset + 1
                elif error.code() in _GONE:
                    raise _deleted(topic, partition, next_.get(partition, 0))
                elif error.code() != KafkaError._PARTITION_EOF and not error.retriable():
                    raise TopicError(f"{topic}/{partition}: {error.str()}")
            yield found

    def _fetch(self, topic: str) -> list[Message]:
        """The next records, and ends of partitions; never none."""
        deadline = SYSTEM.monotonic() + STALL_SECONDS
        while SYSTEM.monotonic() < deadline:
            usable = []
            # The client waits until it has as many as asked for, or the time is over: the first is taken alone.
            for message in self._consumer.consume(1, _POLL_SECONDS) + self._consumer.consume(_BATCH, 0):
                error = message.error()
                if error is None or error.code() == KafkaError._PARTITION_EOF or error.code() in _GONE:
                    usable.append(message)
                elif not error.retriable():
                    raise TopicError(f"{topic}/{message.partition()}: {error.str()}")
            if usable:
                return usable
        raise TopicError(f"{topic}: the broker sent nothing for {STALL_SECONDS:.0f} s")


def of_message(message: Message) -> LogRecord:
    """The record in a client's message."""
    try:
        headers, is_whole = message.headers() or [], True
    except UnicodeDecodeError:
        headers, is_whole = [], False
    return LogRecord(
        message.partition() or 0,
        message.offset() or 0,
        message.timestamp()[1],
        message.key(),
        message.value(),
        headers,  # type: ignore[arg-type]
        is_whole,
    )


def _deleted(topic: str, partition: int, offset: int) -> RecordsDeleted:
    return RecordsDeleted(
        f"{topic}/{partition}: the records from offset {offset} on were deleted before they were read (retention, or "
        f"DeleteRecords); `offsetzero topics describe {topic}` shows what is left",
        partition,
        offset,
    )
