"""The whole history of a topic: from the archive where the log has it no more, then from the log."""

from collections.abc import Iterator, Mapping

from offsetzero.errors import HistoryError
from offsetzero.history.archive import Archive
from offsetzero.settings import Settings
from offsetzero.topics import retained
from offsetzero.topics.reading import LogRecord, RecordsDeleted, TopicReader

_BATCH = 1_000


def history(settings: Settings, topic: str, starts: Mapping[int, int]) -> Iterator[list[LogRecord]]:
    """The records of a topic from offsets on up to its last stable offset of now: from the archive where the log has
    them no more, then from the log. Partition by partition, in batches, each offset once.

    Records that are deleted from the log while it is read are taken from the archive.

    Args:
        settings: name the cluster and the object store.
        topic: by our name.
        starts: by partition, the first offset.

    Raises:
        HistoryError: neither of them has an offset; the message says which.
        TopicError: the broker refuses, or does not answer.
    """
    store, bounds = Archive(settings, topic), retained.bounds(settings, topic)
    for partition, start in sorted(starts.items()):
        at, end = start, bounds[partition].end
        low = bounds[partition].low
        while at < end:
            if at >= low:
                try:
                    with TopicReader(settings) as reader:
                        for batch in reader.read(topic, {partition: (at, end)}):
                            at = batch[-1].offset + 1
                            yield batch
                    at = end
                except RecordsDeleted:
                    low = retained.bounds(settings, topic)[partition].low
                continue
            segment = next((one for one in store.segments(partition) if one.first <= at < one.end), None)
            if segment is None:
                raise HistoryError(
                    f"{topic}/{partition}: the offsets {at} to {low - 1} are neither in the log nor in the archive"
                )
            for one in _batches(store.read(segment)):
                if found := [it for it in one if at <= it.offset < end]:
                    yield found
            at = segment.end


def _batches(records: Iterator[LogRecord]) -> Iterator[list[LogRecord]]:
    batch: list[LogRecord] = []
    for one in records:
        batch.append(one)
        if len(batch) == _BATCH:
            yield batch
            batch = []
    if batch:
        yield batch
