"""Dead letters of records that their topic is too small for: where the record is, and its hash, in its place.

A pointer has an empty value, never a null one, which would be a tombstone, and the header `oz_pointer`. Like every
dead letter it names its origin, where the record itself is for as long as the source is retained.
"""

import hashlib
import re
from collections.abc import Sequence
from dataclasses import dataclass, field

from offsetzero.errors import TopicError
from offsetzero.retry import headers as retry_headers
from offsetzero.retry.headers import Headers, Origin
from offsetzero.settings import Settings
from offsetzero.topics import admin, offsets
from offsetzero.topics.names import Names
from offsetzero.topics.reading import LogRecord, RecordsDeleted, TopicReader

HEADER = "oz_pointer"
KEY_HEADER = "oz_pointer_key"
"""There when the key was too large to be kept: its size in bytes."""
VALUE = b""
KEPT_BYTES = 4 * 1024
"""Of the event's own headers, those of CloudEvents first; and of the key."""
_NULL = "null"
_SHAPE = re.compile(r"([0-9a-f]{64}) (null|\d{1,18})", re.ASCII)


class PointerLost(TopicError):
    """What a pointer points to is not there any more."""


@dataclass(frozen=True, slots=True)
class Pointer:
    """The hash and size of a record's value; `size` is None for a record that has none. `key_size` is that of a key
    which was too large to be kept, None when the dead letter has the record's key."""

    sha256: str
    size: int | None
    key_size: int | None = field(default=None, compare=False)

    @staticmethod
    def to(value: bytes | None) -> "Pointer":
        """The pointer to a record of this value."""
        return Pointer(hashlib.sha256(value or b"").hexdigest(), None if value is None else len(value))

    def __str__(self) -> str:
        return f"{self.sha256} {_NULL if self.size is None else self.size}"


def write(headers: Sequence[tuple[str, bytes | None]], value: bytes | None, key: bytes | None) -> Headers:
    """The headers of a pointer: as much of the event's own as is small, and the pointer.

    Args:
        headers: the record's as they came, with what `offsetzero.retry.headers.write` adds.
        value: the record's.
        key: likewise.
    """
    ours = [one for one in headers if one[0].startswith(retry_headers.PREFIX) and one[0] not in (HEADER, KEY_HEADER)]
    if key_of(key) != key:
        ours.append((KEY_HEADER, str(len(key or b"")).encode()))
    own = [one for one in headers if not one[0].startswith(retry_headers.PREFIX)]
    room, kept = KEPT_BYTES, set[int]()
    for number, one in sorted(enumerate(own), key=lambda item: not _is_attribute(item[1][0])):
        if (size := retry_headers.size_of([one])) <= room:
            room -= size
            kept.add(number)
    shown = [one for number, one in enumerate(own) if number in kept]
    return [*shown, *ours, (HEADER, str(Pointer.to(value)).encode())]


def key_of(key: bytes | None) -> bytes | None:
    """The key of a pointer: the record's, unless it is large, too."""
    return key if key is not None and len(key) <= KEPT_BYTES else None


def read(headers: Sequence[tuple[str, bytes | None]]) -> Pointer | None:
    """The pointer of a dead letter; None for one that is a record itself, or whose pointer nobody of us wrote."""
    ours = {name: value.decode(errors="replace") for name, value in headers if name.startswith(HEADER) and value}
    shape = _SHAPE.fullmatch(ours.get(HEADER, ""))
    if shape is None:
        return None
    key_size = ours.get(KEY_HEADER, "")
    size = None if shape[2] == _NULL else int(shape[2])
    return Pointer(shape[1], size, int(key_size) if key_size.isdecimal() and key_size.isascii() else None)


def resolve(settings: Settings, pointer: Pointer, origin: Origin) -> LogRecord:
    """The record that a pointer stands for, from its source.

    Args:
        settings: name the cluster.
        pointer: from the dead letter.
        origin: where the record was first read, which the dead letter names.

    Raises:
        PointerLost: it is not retained, its topic was deleted, or another record is there: nobody has it any more.
        TopicError: the broker does not answer.
    """
    names = Names(settings.kafka.namespace)
    found = offsets.describe(admin.client(settings), names, [origin.topic]).get(origin.topic)
    if found is None or found.id != origin.topic_id:
        what = "was deleted" if found is None else "was deleted and made again"
        raise PointerLost(f"{origin.topic}/{origin.partition}@{origin.offset}: the topic {what} since")
    record = _fetch(settings, origin)
    if Pointer.to(record.value) != pointer:
        raise PointerLost(
            f"{origin.topic}/{origin.partition}@{origin.offset}: the record there is not the one that failed"
            " (its hash differs; a record that an operator has edited is kept nowhere else)"
        )
    return record


def _fetch(settings: Settings, origin: Origin) -> LogRecord:
    found: list[LogRecord] = []
    try:
        with TopicReader(settings) as reader:
            for batch in reader.read(origin.topic, {origin.partition: (origin.offset, origin.offset + 1)}):
                found += batch
    except RecordsDeleted:
        pass
    if not found:
        raise PointerLost(f"{origin.topic}/{origin.partition}@{origin.offset}: the record is not retained any more")
    return found[0]


def _is_attribute(name: str) -> bool:
    return name.startswith("ce_") or name.lower() == "content-type"
