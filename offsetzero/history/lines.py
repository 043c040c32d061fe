"""Records as lines of JSON: exact, and readable.

Bytes that are UTF-8 are a text; all others are `{"base64": …}`. `data` is the value decoded, for readers like jq; an
import does not look at it.
"""

import base64
import json
from collections.abc import Iterator, Sequence
from typing import IO, Any

from offsetzero.errors import HistoryError
from offsetzero.history.decoding import Decoder
from offsetzero.topics.reading import LogRecord

_BASE64 = "base64"


class LineWriter:
    """Writes records to a file, each with its decoded data."""

    def __init__(self, file: IO[bytes], decoder: Decoder) -> None:
        self._file = file
        self._decoder = decoder

    def write(self, records: Sequence[LogRecord]) -> None:
        """Append records."""
        self._file.write("".join(self._line(one) for one in records).encode())

    def close(self) -> None:
        """Nothing is left to write."""

    def _line(self, record: LogRecord) -> str:
        decoded = self._decoder.decode(record)
        fields = as_fields(record)
        fields["data"] = decoded.data
        if decoded.problem is not None:
            fields["problem"] = decoded.problem
        return json.dumps(fields, ensure_ascii=True, separators=(",", ":")) + "\n"


def as_fields(record: LogRecord) -> dict[str, Any]:
    """A record as JSON has it, without its data."""
    return {
        "partition": record.partition,
        "offset": record.offset,
        "timestamp_ms": record.timestamp_ms,
        "key": _text(record.key),
        "headers": [[name, _text(value)] for name, value in record.headers],
        "value": _text(record.value),
    }


def read(file: IO[bytes], name: str) -> Iterator[LogRecord]:
    """The records of a file of lines.

    Args:
        file: at its start.
        name: of the file, for messages.

    Raises:
        HistoryError: a line is no record.
    """
    for number, line in enumerate(file, 1):
        try:
            one = json.loads(line)
            headers = [(str(header), _bytes(value)) for header, value in one["headers"]]
            yield LogRecord(
                int(one["partition"]),
                int(one["offset"]),
                int(one["timestamp_ms"]),
                _bytes(one["key"]),
                _bytes(one["value"]),
                headers,
            )
        except (ValueError, KeyError, TypeError) as error:
            raise HistoryError(f"{name}, line {number}: not a record of an export ({error!r})") from error


def _text(value: bytes | None) -> Any:
    if value is None:
        return None
    try:
        return value.decode()
    except UnicodeDecodeError:
        return {_BASE64: base64.b64encode(value).decode()}


def _bytes(value: Any) -> bytes | None:
    if value is None:
        return None
    if isinstance(value, str):
        return value.encode()
    return base64.b64decode(value[_BASE64], validate=True)
