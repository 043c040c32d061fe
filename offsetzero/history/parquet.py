"""Records in Parquet, with their attributes and decoded data as columns; needs pyarrow."""

import json
from collections.abc import Iterator, Sequence
from typing import IO, Any

from offsetzero.errors import ConfigurationError, HistoryError
from offsetzero.history.decoding import Decoder
from offsetzero.topics.reading import LogRecord

_ROWS = 20_000
_EXACT = ("partition", "offset", "timestamp", "key", "headers", "value")


def _arrow() -> tuple[Any, Any]:
    try:
        import pyarrow
        from pyarrow import parquet
    except ModuleNotFoundError:
        raise ConfigurationError("Parquet needs the package pyarrow: pip install 'offsetzero[parquet]'") from None
    return pyarrow, parquet


class ParquetRecords:
    """Writes records to a file, in row groups; `close` writes the footer and leaves the file open.

    Raises:
        ConfigurationError: pyarrow is not installed.
    """

    def __init__(self, file: IO[bytes], decoder: Decoder) -> None:
        arrow, parquet = _arrow()
        self._arrow = arrow
        self._decoder = decoder
        text = arrow.string()
        header = arrow.struct([arrow.field("name", text, False), arrow.field("value", arrow.binary())])
        self._schema = arrow.schema(
            [
                arrow.field("partition", arrow.int32(), False),
                arrow.field("offset", arrow.int64(), False),
                arrow.field("timestamp", arrow.timestamp("ms", "UTC"), False),
                arrow.field("key", arrow.binary()),
                arrow.field("headers", arrow.list_(header), False),
                arrow.field("value", arrow.binary()),
                *(arrow.field(name, text) for name in ("type", "id", "source", "tenant", "data", "problem")),
            ]
        )
        self._writer = parquet.ParquetWriter(file, self._schema, compression="zstd")
        self._waiting: list[dict[str, Any]] = []

    def write(self, records: Sequence[LogRecord]) -> None:
        """Append records."""
        self._waiting += [self._row(one) for one in records]
        if len(self._waiting) >= _ROWS:
            self._write()

    def close(self) -> None:
        """Write what is left, and the footer."""
        self._write()
        self._writer.close()

    def _write(self) -> None:
        if self._waiting:
            self._writer.write_table(self._arrow.Table.from_pylist(self._waiting, self._schema))
            self._waiting.clear()

    def _row(self, record: LogRecord) -> dict[str, Any]:
        decoded = self._decoder.decode(record)
        meta = decoded.meta
        return {
            "partition": record.partition,
            "offset": record.offset,
            "timestamp": record.timestamp_ms,
            "key": record.key,
            "headers": [{"name": name, "value": value} for name, value in record.headers],
            "value": record.value,
            "type": meta and meta.type,
            "id": meta and meta.id,
            "source": meta and meta.source,
            "tenant": meta and meta.tenant_id,
            "data": None if decoded.data is None else json.dumps(decoded.data, ensure_ascii=False),
            "problem": decoded.problem,
        }


def read(file: IO[bytes], name: str) -> Iterator[LogRecord]:
    """The records of a Parquet file of ours.

    Args:
        file: seekable.
        name: of the file, for messages.

    Raises:
        ConfigurationError: pyarrow is not installed.
        HistoryError: it is no such file.
    """
    arrow, parquet = _arrow()
    try:
        for batch in parquet.ParquetFile(file).iter_batches(_ROWS, columns=list(_EXACT)):
            times = batch.column("timestamp").cast(arrow.int64())
            columns = [batch.column(name) if name != "timestamp" else times for name in _EXACT]
            for partition, offset, time, key, headers, value in zip(
                *(column.to_pylist() for column in columns), strict=True
            ):
                pairs = [(header["name"], header["value"]) for header in headers]
                yield LogRecord(partition, offset, time, key, value, pairs)
    except (arrow.ArrowException, KeyError, TypeError) as error:
        raise HistoryError(f"{name}: not a whole Parquet file of an export ({error})") from error
