"""A file of an export into a topic: what is there already is left out, by event id.

Records are appended in transactions of one producer per topic. To begin means to end the transaction of whoever
imported into that topic before (KIP-98), alive or killed; only then the topic is read for what it has. So an import
that was killed at any point goes on where it ended, and nothing is there twice.
"""

import hashlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path

from offsetzero.clock import SYSTEM
from offsetzero.errors import HistoryError, SchemaError
from offsetzero.history import containers, lines, manifest, parquet, schemas
from offsetzero.history.manifest import Manifest
from offsetzero.producers.transactions import TransactionalProducer
from offsetzero.schemas import cloudevents, writer
from offsetzero.settings import Settings
from offsetzero.topics import cluster, retained
from offsetzero.topics.names import Names
from offsetzero.topics.partitioner import partition_of
from offsetzero.topics.reading import LogRecord, TopicReader
from offsetzero.topics.schema_log import SchemaLog

TRANSACTION_RECORDS = 5_000
TRANSACTION_BYTES = 16 * 1024 * 1024
_READERS = {"jsonl": lines.read, "avro": containers.read, "parquet": parquet.read}
_FOREVER = "-1"


@dataclass(slots=True)
class Outcome:
    """What an import came to, or would come to.

    Attributes:
        topic: by our name.
        records: in the file.
        repeated: of these, events that are in the file more than once; one of each counts.
        present: of these, already in the topic.
        appended: of these, missing there: what is, or would be, appended.
    """

    topic: str
    records: int
    repeated: int = 0
    present: int = 0
    appended: int = 0


@dataclass(slots=True)
class _File:
    """What a first look at the file found: who is in it, and which schemas."""

    ids: set[bytes] = field(default_factory=set)
    repeated: int = 0
    fingerprints: dict[str, str] = field(default_factory=dict)
    """Each with the place of its first record."""


def identity(record: LogRecord) -> bytes:
    """What tells a record from all others: source and id of an event; of what is no event, all that it holds."""
    digest = hashlib.blake2b(digest_size=16)
    try:
        event = cloudevents.glance(record.value, record.headers)
        digest.update(b"event")
        digest.update(repr((event.source, event.id)).encode())
    except SchemaError:
        digest.update(repr((record.timestamp_ms, record.key, record.value, record.headers)).encode())
    return digest.digest()


def import_file(
    settings: Settings,
    path: Path,
    topic: str | None = None,
    *,
    dry_run: bool = False,
    keep_unreadable: bool = False,
    tell: Callable[[str, int, int], object] = lambda _step, _done, _total: None,
) -> Outcome:
    """Append those records of a file that the topic has not got, with their keys, headers and times.

    A record goes to the partition that it came from when the topic has as many as the one that was exported; else to
    the one of its key. Records of a key keep their order.

    Args:
        settings: name the cluster.
        path: the file; its manifest is beside it.
        topic: by our name; by default the one that was exported.
        dry_run: only count.
        keep_unreadable: take records whose writer schema nobody has, as they are.
        tell: called with the step, and how much of how much of it is done.

    Raises:
        HistoryError: the file is not whole, has schemas that nobody has, or the topic cannot keep its records.
        TopicError: there is no such topic, or the cluster does not answer.
        PublishError: the broker did not take a record, or another import into the topic has begun.
    """
    about = manifest.load(path)
    topic = topic or about.topic
    count = retained.existing(settings, topic)
    found = _look(path, about, tell)
    _check_schemas(settings, path, about, found, keep_unreadable)
    _check_times(settings, topic, about)
    outcome = Outcome(topic, about.records, found.repeated)
    if dry_run:
        _take_out(settings, topic, found.ids, tell)
        outcome.appended = len(found.ids)
        outcome.present = about.records - found.repeated - outcome.appended
        return outcome
    with TransactionalProducer(settings, f"log-import.{topic}", linger=0.02) as producer:
        _take_out(settings, topic, found.ids, tell)
        outcome.present = about.records - found.repeated - len(found.ids)
        _publish_schemas(settings, about, found)
        missing = _missing(path, about, found.ids, tell)
        outcome.appended = _append(settings, producer, topic, count, count == about.partition_count, missing)
    return outcome


def records(path: Path, kind: str) -> Iterator[LogRecord]:
    """The records of an exported file, in its order.

    Raises:
        HistoryError: it is not whole.
    """
    if kind not in _READERS:
        raise HistoryError(f"{path}: of the form {kind}, which this version does not know")
    with path.open("rb") as file:
        yield from _READERS[kind](file, str(path))


def _look(path: Path, about: Manifest, tell: Callable[[str, int, int], object]) -> _File:
    found, number = _File(), 0
    for number, one in enumerate(records(path, about.kind), 1):
        who = identity(one)
        if who in found.ids:
            found.repeated += 1
        found.ids.add(who)
        if (fingerprint := schemas.fingerprint(one.value)) is not None:
            found.fingerprints.setdefault(fingerprint, f"{about.topic}/{one.partition}@{one.offset}")
        if number % 1_000 == 0:
            tell("read the file", number, about.records)
    if number != about.records:
        raise HistoryError(f"{path}: {number:,} records, and its manifest says {about.records:,}")
    return found


def _check_schemas(settings: Settings, path: Path, about: Manifest, found: _File, keep: bool) -> None:
    asked = [one for one in found.fingerprints if one not in about.schemas]
    known = schemas.texts(settings, asked)
    unknown = [one for one in asked if one not in known]
    if unknown and not keep:
        where = "\n".join(f"  {one}: first in {found.fingerprints[one]}" for one in unknown)
        raise HistoryError(
            f"{path}: records were written with schemas that are in no contract, not in the file's manifest, and not "
            f"in the topic `schemas`; nobody could read them:\n{where}\nPublish the schemas first (`offsetzero topics "
            "apply` with the producer's modules), or give --keep-unreadable"
        )


def _check_times(settings: Settings, topic: str, about: Manifest) -> None:
    config = cluster.read(settings, [topic])[topic].config
    if config.get("message.timestamp.type") == "LogAppendTime":
        raise HistoryError(f"topic {topic} gives records the time of their append: the events' times would be lost")
    kept = config.get("retention.ms", _FOREVER)
    is_deleted = "delete" in config.get("cleanup.policy", "delete") and kept != _FOREVER
    if is_deleted and about.first_ms is not None and about.first_ms < SYSTEM.now_ms() - int(kept):
        raise HistoryError(
            f"topic {topic} keeps records for {int(kept) / 86_400_000:g} days, and the file has older ones, which it "
            "would delete at once; raise retention.ms, or import into another topic with --topic"
        )


def _publish_schemas(settings: Settings, about: Manifest, found: _File) -> None:
    frozen = schemas.frozen_texts()
    carried = [text for one, text in about.schemas.items() if one in found.fingerprints and one not in frozen]
    if carried:
        log = SchemaLog(settings)
        try:
            log.publish([writer.load(text) for text in carried])
        finally:
            log.close()


def _take_out(settings: Settings, topic: str, ids: set[bytes], tell: Callable[[str, int, int], object]) -> None:
    """Take out of a set who is in the topic."""
    spans = {number: (one.low, one.end) for number, one in retained.bounds(settings, topic).items()}
    total, done = sum(end - first for first, end in spans.values()), 0
    with TopicReader(settings) as reader:
        for batch in reader.read(topic, spans):
            ids.difference_update(identity(one) for one in batch)
            done += len(batch)
            tell("read the topic", done, total)


def _missing(
    path: Path, about: Manifest, ids: set[bytes], tell: Callable[[str, int, int], object]
) -> Iterator[LogRecord]:
    for number, one in enumerate(records(path, about.kind), 1):
        if (who := identity(one)) in ids:
            ids.discard(who)
            yield one
        if number % 1_000 == 0:
            tell("append", number, about.records)


def _append(
    settings: Settings,
    producer: TransactionalProducer,
    topic: str,
    count: int,
    same_partitions: bool,
    missing: Iterator[LogRecord],
) -> int:
    name, appended, size = Names(settings.kafka.namespace).topic(topic), 0, 0
    for one in missing:
        if size == 0 or appended % TRANSACTION_RECORDS == 0 or size > TRANSACTION_BYTES:
            if appended:
                producer.commit()
            producer.begin()
            size = 1
        keeps = same_partitions or one.key is None
        partition = one.partition % count if keeps else partition_of(one.key or b"", count)
        producer.produce(
            name,
            key=one.key,
            value=one.value,
            headers=one.headers,
            partition=partition,
            timestamp_ms=max(0, one.timestamp_ms),
        )
        appended += 1
        size += len(one.value or b"")
    if appended:
        producer.commit()
    return appended
