"""Part of a topic into a file: streamed, and there only when it is whole."""

from collections.abc import Callable
from pathlib import Path
from typing import IO, Protocol

from offsetzero.errors import HistoryError
from offsetzero.history import manifest, schemas
from offsetzero.history.containers import ContainerWriter
from offsetzero.history.decoding import Decoder
from offsetzero.history.kinds import Kind
from offsetzero.history.lines import LineWriter
from offsetzero.history.manifest import Manifest, Part
from offsetzero.history.parquet import ParquetRecords
from offsetzero.history.spans import Spans
from offsetzero.history.whole_file import whole_file
from offsetzero.settings import Settings
from offsetzero.topics import cluster, retained
from offsetzero.topics.reading import LogRecord, TopicReader


class Writes(Protocol):
    """Writes records in one of the forms."""

    def write(self, records: list[LogRecord]) -> None:
        """Append records."""

    def close(self) -> None:
        """Write what is left; the file stays open."""


def export(
    settings: Settings,
    topic: str,
    spans: Spans,
    kind: Kind,
    path: Path,
    *,
    overwrite: bool = False,
    tell: Callable[[int], object] = lambda _offsets: None,
) -> Manifest:
    """Write the records of the spans to a file, and its manifest beside it.

    Both are written under other names and moved when they are whole; what an end by force leaves behind is one hidden
    file, which the next export to the same name takes over.

    Args:
        settings: name the cluster.
        topic: by our name.
        spans: as `offsetzero.history.spans.resolve` gives them.
        kind: the form.
        path: of the file.
        overwrite: whether to replace a file that is there.
        tell: called now and then with how many offsets of the spans are done.

    Raises:
        HistoryError: the file is there, cannot be written, or a record cannot be kept exactly.
        RecordsDeleted: records of a span were deleted before they were read.
        TopicError: the broker refuses, or does not answer.
        ConfigurationError: Parquet, and no pyarrow.
    """
    beside = manifest.beside(path)
    if path.exists() and not path.is_file():
        raise HistoryError(f"{path}: not a file, so nothing is written there")  # else a device would be replaced
    if not overwrite and (there := next((one for one in (path, beside) if one.exists()), None)):
        raise HistoryError(f"{there} is there already; --overwrite replaces it")
    topic_id, count = cluster.topic_ids(settings, [topic])[topic], retained.existing(settings, topic)
    tally = _Tally(spans)
    with whole_file(path) as file, Decoder(settings) as decoder:
        writer = _writer(kind, file, decoder)
        with TopicReader(settings) as reader:
            for batch in reader.read(topic, spans):
                tally.count(topic, batch)
                writer.write(batch)
                tell(tally.done)
        writer.close()
        file.flush()
        made = Manifest(
            kind,
            topic,
            topic_id,
            count,
            tally.parts(),
            tally.records,
            tally.first_ms,
            tally.last_ms,
            file.tell(),
            manifest.sha256(Path(file.name)),
            schemas.texts(settings, tally.fingerprints),
        )
        with whole_file(beside) as other:
            other.write(made.text().encode())
    return made


class _Tally:
    """What the manifest says of the records."""

    def __init__(self, spans: Spans) -> None:
        self._spans = spans
        self._counts = dict.fromkeys(spans, 0)
        self._at = {number: first for number, (first, _) in spans.items()}
        self.records = 0
        self.first_ms: int | None = None
        self.last_ms: int | None = None
        self.fingerprints: set[str] = set()

    @property
    def done(self) -> int:
        return sum(at - self._spans[number][0] for number, at in self._at.items())

    def count(self, topic: str, batch: list[LogRecord]) -> None:
        for one in batch:
            if not one.is_whole:
                raise HistoryError(
                    f"{topic}/{one.partition}@{one.offset}: the name of a header is not UTF-8, so the client reads no "
                    "headers: this record cannot be kept exactly; leave it out with --partition, --from and --to"
                )
            self._counts[one.partition] += 1
            self._at[one.partition] = one.offset + 1
            if (fingerprint := schemas.fingerprint(one.value)) is not None:
                self.fingerprints.add(fingerprint)
        times = [one.timestamp_ms for one in batch]
        self.first_ms = min(times) if self.first_ms is None else min(self.first_ms, *times)
        self.last_ms = max(times) if self.last_ms is None else max(self.last_ms, *times)
        self.records += len(batch)

    def parts(self) -> list[Part]:
        return [Part(number, *span, self._counts[number]) for number, span in sorted(self._spans.items())]


def _writer(kind: Kind, file: IO[bytes], decoder: Decoder) -> Writes:
    if kind is Kind.AVRO:
        return ContainerWriter(file)
    return LineWriter(file, decoder) if kind is Kind.JSONL else ParquetRecords(file, decoder)
