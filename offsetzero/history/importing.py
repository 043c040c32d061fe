"""A file of an export into a topic: what is there already is left out, by event id.

Records are appended in transactions of one producer per topic. To begin means to end the transaction of whoever
imported into that topic before (KIP-98), alive or killed; only then the topic is read for what it has. So an import
that was killed at any point goes on where it ended, and nothing is there twice.
"""

import hashlib
from collections.abc import Callable, Collection, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from offsetzero.clock import SYSTEM
from offsetzero.errors import HistoryError, SchemaError
from offsetzero.history import containers, lines, manifest, parquet, schemas
from offsetzero.history.identities import DIGEST, Identities, Missing
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


def identity(record: LogRecord) -> bytes:
    """What tells a record from all others: source and id of an event; of what is no event, all that it holds."""
    digest = hashlib.blake2b(digest_size=DIGEST)
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
    with Identities(about.records) as identities:
        fingerprints = _look(path, about, identities, tell)
        _check_schemas(settings, path, about, fingerprints, keep_unreadable)
        _check_times(settings, topic, about)
        if dry_run:
            missing = _compare(settings, topic, identities, tell)
            return _outcome(topic, about, missing)
        with TransactionalProducer(settings, f"log-import.{topic}", linger=0.02) as producer:
            missing = _compare(settings, topic, identities, tell)
            _publish_schemas(settings, about, fingerprints)
            left = _missing(path, about, missing, tell)
            _append(settings, producer, topic, count, count == about.partition_count, left)
            return _outcome(topic, about, missing)


def records(path: Path, kind: str) -> Iterator[LogRecord]:
    """The records of an exported file, in its order.

    Raises:
        HistoryError: it is not whole.
    """
    if kind not in _READERS:
        raise HistoryError(f"{path}: of the form {kind}, which this version does not know")
    with path.open("rb") as file:
        yield from _READERS[kind](file, str(path))


def _outcome(topic: str, about: Manifest, missing: Missing) -> Outcome:
    present = about.records - missing.repeated - len(missing)
    return Outcome(topic, about.records, missing.repeated, present, len(missing))


def _look(
    path: Path, about: Manifest, identities: Identities, tell: Callable[[str, int, int], object]
) -> dict[str, str]:
    """Who is in the file, and the schemas that are, each with the place of its first record."""
    found: dict[str, str] = {}
    for number, one in enumerate(records(path, about.kind), 1):
        identities.add(identity(one))
        if (fingerprint := schemas.fingerprint(one.value)) is not None:
            found.setdefault(fingerprint, f"{about.topic}/{one.partition}@{one.offset}")
        if number % 1_000 == 0:
            tell("read the file", number, about.records)
    if identities.count != about.records:
        raise HistoryError(f"{path}: {identities.count:,} records, and its manifest says {about.records:,}")
    return found


def _check_schemas(settings: Settings, path: Path, about: Manifest, found: Mapping[str, str], keep: bool) -> None:
    asked = [one for one in found if one not in about.schemas]
    known = schemas.texts(settings, asked)
    unknown = [one for one in asked if one not in known]
    if unknown and not keep:
        where = "\n".join(f"  {one}: first in {found[one]}" for one in unknown)
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


def _publish_schemas(settings: Settings, about: Manifest, found: Collection[str]) -> None:
    frozen = schemas.frozen_texts()
    carried = [text for one, text in about.schemas.items() if one in found and one not in frozen]
    if carried:
        log = SchemaLog(settings)
        try:
            log.publish([writer.load(text) for text in carried])
        finally:
            log.close()


def _compare(
    settings: Settings, topic: str, identities: Identities, tell: Callable[[str, int, int], object]
) -> Missing:
    """Which records of the file the topic has not got."""
    spans = {number: (one.low, one.end) for number, one in retained.bounds(settings, topic).items()}
    total, done = sum(end - first for first, end in spans.values()), 0
    with TopicReader(settings) as reader:
        for batch in reader.read(topic, spans):
            for one in batch:
                identities.take_out(identity(one))
            done += len(batch)
            tell("read the topic", done, total)
    return identities.missing()


def _missing(
    path: Path, about: Manifest, missing: Missing, tell: Callable[[str, int, int], object]
) -> Iterator[LogRecord]:
    if not missing:
        return
    for number, one in enumerate(records(path, about.kind)):
        if number in missing:
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
) -> None:
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
