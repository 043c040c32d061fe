"""Records in Avro object container files: the form of the archive, and of `log export --format avro`."""

from collections.abc import Iterator, Sequence
from typing import IO, Any

import fastavro
from fastavro.write import Writer

from offsetzero.errors import HistoryError
from offsetzero.topics.reading import LogRecord

SCHEMA = fastavro.parse_schema(
    {
        "type": "record",
        "name": "offsetzero.log.Record",
        "doc": "A Kafka record as the log has it; key, headers and value are its bytes, undecoded.",
        "fields": [
            {"name": "partition", "type": "int"},
            {"name": "offset", "type": "long"},
            {"name": "timestamp_ms", "type": "long"},
            {"name": "key", "type": ["null", "bytes"]},
            {
                "name": "headers",
                "type": {
                    "type": "array",
                    "items": {
                        "type": "record",
                        "name": "Header",
                        "fields": [{"name": "name", "type": "string"}, {"name": "value", "type": ["null", "bytes"]}],
                    },
                },
            },
            {"name": "value", "type": ["null", "bytes"]},
        ],
    }
)
_NAME = "offsetzero.log.Record"
_BLOCK_BYTES = 256 * 1024


class ContainerWriter:
    """Writes records to a file, in blocks; `close` writes the last one and leaves the file open."""

    def __init__(self, file: IO[bytes]) -> None:
        self._writer: Any = Writer(file, SCHEMA, codec="deflate", sync_interval=_BLOCK_BYTES, compression_level=1)

    def write(self, records: Sequence[LogRecord]) -> None:
        """Append records."""
        for one in records:
            self._writer.write(
                {
                    "partition": one.partition,
                    "offset": one.offset,
                    "timestamp_ms": one.timestamp_ms,
                    "key": one.key,
                    "headers": [{"name": name, "value": value} for name, value in one.headers],
                    "value": one.value,
                }
            )

    def close(self) -> None:
        """Write what is left."""
        self._writer.flush()


def read(file: IO[bytes], name: str) -> Iterator[LogRecord]:
    """The records of a container file.

    Args:
        file: at its start.
        name: of the file, for messages.

    Raises:
        HistoryError: it is no such file, or ends in the middle.
    """
    try:
        found: Any = fastavro.reader(file)
        if found.writer_schema.get("name") != _NAME:
            raise HistoryError(f"{name}: an Avro file of {found.writer_schema.get('name')}, not of records of a log")
        for one in found:
            headers = [(header["name"], header["value"]) for header in one["headers"]]
            yield LogRecord(one["partition"], one["offset"], one["timestamp_ms"], one["key"], one["value"], headers)
    except HistoryError:
        raise
    except OSError:
        raise
    except Exception as error:  # what fastavro raises of bytes that are no Avro is of many kinds
        raise HistoryError(f"{name}: not a whole Avro object container file ({error})") from error
