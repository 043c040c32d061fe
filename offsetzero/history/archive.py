"""Spans of topics in the object store.

A segment is a container file of the records of a span of one partition, and a manifest. The manifest is what makes a
segment exist. Its key is its first offset, so the store itself lets only one of several archivers make it; it is
written after the file was read back and agreed in count and SHA-256.
"""

import hashlib
import json
import tempfile
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass
from typing import IO

from offsetzero.errors import HistoryError
from offsetzero.history import containers, schemas
from offsetzero.history.containers import ContainerWriter
from offsetzero.history.spans import Spans
from offsetzero.settings import Settings
from offsetzero.store.objects import Objects
from offsetzero.topics import cluster, retained
from offsetzero.topics.reading import LogRecord, TopicReader

SEGMENT_OFFSETS = 200_000
_ROOT = "archive"
_FORM = "offsetzero-archive/1"
_LIMIT = 1 << 40


@dataclass(frozen=True, slots=True)
class Segment:
    """The offsets from `first` to before `end` of a partition, in `records` records; `key` is the object's."""

    topic: str
    topic_id: str
    partition: int
    first: int
    end: int
    records: int
    first_ms: int | None
    last_ms: int | None
    sha256: str
    key: str
    schemas: dict[str, str]


class Archive:
    """What the object store has of a topic, in the order of offsets.

    Args:
        settings: name the cluster and the object store.
        topic: by our name. A topic that was deleted and made again is another one.

    Raises:
        TopicError: there is no such topic.
        HistoryError: a manifest cannot be read.
    """

    def __init__(self, settings: Settings, topic: str) -> None:
        retained.existing(settings, topic)
        self.topic, self.topic_id = topic, cluster.topic_ids(settings, [topic])[topic]
        self.objects = Objects(settings.objects)
        # Kafka's text of the id is Base64, which may have a slash in it: an empty or another folder.
        name = self.topic_id.replace("/", "_").replace("+", "-")
        self._folder = f"{_ROOT}/{settings.kafka.namespace}{topic}/{name}"

    def segments(self, partition: int) -> list[Segment]:
        """The segments of a partition."""
        keys = self.objects.keys(f"{self._folder}/{partition}")
        return [self._load(key) for key in keys if key.endswith(".json")]

    def add(self, segment: Segment) -> bool:
        """Have a segment exist; False when another one begins at its first offset."""
        text = json.dumps({"form": _FORM, **asdict(segment)}, indent=2)
        return self.objects.create(f"{self._path(segment.partition, segment.first)}.json", text.encode())

    def key(self, partition: int, first: int, sha256: str) -> str:
        """The key of a segment's file: two archivers write the same one only when it has the same bytes."""
        return f"{self._path(partition, first)}-{sha256[:16]}.avro"

    def read(self, segment: Segment) -> Iterator[LogRecord]:
        """The records of a segment.

        Raises:
            HistoryError: the file is not the one that was archived.
            ObjectMissing: it is not there.
        """
        with tempfile.TemporaryFile() as file:
            self.objects.download(self.objects.uri(segment.key), file, _LIMIT)
            if _sha256(file) != segment.sha256:
                raise HistoryError(f"{segment.key}: its SHA-256 is not the one of its manifest: it was changed")
            file.seek(0)
            count = 0
            for one in containers.read(file, segment.key):
                count += 1
                yield one
            if count != segment.records:
                raise HistoryError(f"{segment.key}: {count:,} records, and its manifest says {segment.records:,}")

    def _path(self, partition: int, first: int) -> str:
        return f"{self._folder}/{partition}/{first:020d}"

    def _load(self, key: str) -> Segment:
        try:
            fields = json.loads(self.objects.read(key))
            if fields.pop("form") != _FORM:
                raise ValueError("another form")
            return Segment(**fields)
        except (ValueError, KeyError, TypeError) as error:
            raise HistoryError(f"{key}: not the manifest of an archive ({error})") from error


def archive(
    settings: Settings, topic: str, ends: Spans, tell: Callable[[Segment], object] = lambda _segment: None
) -> list[Segment]:
    """Put into the object store what of a topic is not there yet.

    Nothing is deleted from the log: that is what retention is for.

    Args:
        settings: name the cluster and the object store.
        topic: by our name.
        ends: by partition, whatever, and the offset up to which it is closed.
        tell: called with each segment that was made.

    Raises:
        HistoryError: records were deleted that were not archived, or cannot be kept exactly, or the store does not
            give back what it was given.
        TopicError: the broker refuses, or does not answer.
    """
    store, made = Archive(settings, topic), list[Segment]()
    bounds = retained.bounds(settings, topic)
    with TopicReader(settings) as reader:
        for partition, (_, end) in sorted(ends.items()):
            known = store.segments(partition)
            at = known[-1].end if known else bounds[partition].low
            if at < bounds[partition].low:
                raise HistoryError(
                    f"{topic}/{partition}: the offsets {at} to {bounds[partition].low - 1} were deleted before they "
                    "were archived; archive more often than the topic's retention, or begin a new archive elsewhere "
                    "(OFFSETZERO_OBJECT_STORE_URL)"
                )
            while at < end:
                segment = _make(settings, store, reader, partition, at, min(end, at + SEGMENT_OFFSETS))
                if not store.add(segment):  # another archiver was faster, perhaps with another end
                    other = store.segments(partition)[-1]
                    if segment.key not in {one.key for one in store.segments(partition)}:
                        store.objects.remove(segment.key)
                    at = other.end
                    continue
                made.append(segment)
                tell(segment)
                at = segment.end
    return made


def _make(settings: Settings, store: Archive, reader: TopicReader, partition: int, first: int, end: int) -> Segment:
    """Write a segment's file, and read it back."""
    records, times, fingerprints = 0, list[int](), set[str]()
    with tempfile.TemporaryFile() as file:
        writer = ContainerWriter(file)
        for batch in reader.read(store.topic, {partition: (first, end)}):
            if odd := next((one for one in batch if not one.is_whole), None):
                raise HistoryError(
                    f"{store.topic}/{partition}@{odd.offset}: the name of a header is not UTF-8, so the client "
                    "reads no headers: it cannot be kept exactly"
                )
            writer.write(batch)
            records += len(batch)
            sent = [one.timestamp_ms for one in batch]
            times = [min([*times, *sent]), max([*times, *sent])]
            fingerprints.update(one for it in batch if (one := schemas.fingerprint(it.value)) is not None)
        writer.close()
        digest = _sha256(file)
        key = store.key(partition, first, digest)
        file.seek(0)
        store.objects.write(key, file)
    segment = Segment(
        store.topic,
        store.topic_id,
        partition,
        first,
        end,
        records,
        times[0] if times else None,
        times[1] if times else None,
        digest,
        key,
        schemas.texts(settings, fingerprints),
    )
    for _ in store.read(segment):  # raises where count or hash differ
        pass
    return segment


def _sha256(file: IO[bytes]) -> str:
    file.seek(0)
    digest = hashlib.sha256()
    while chunk := file.read(1024 * 1024):
        digest.update(chunk)
    return digest.hexdigest()
