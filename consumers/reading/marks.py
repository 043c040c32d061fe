"""What the polling thread reads of a retry record's headers: whose copy it is, and when it is due."""

from collections.abc import Mapping
from typing import NamedTuple

from offsetzero.consumers.order import Version


class Mark(NamedTuple):
    """Of a copy.

    Attributes:
        topic_id: of the topic that its record was first read from.
        origin: the offset there.
        version: `redrive_no`, `hop`, `due_ms`.
    """

    topic_id: bytes
    origin: int
    version: Version


def read_mark(headers: Mapping[str, bytes | None], partition: int) -> Mark | None:
    """What a record's headers say; None when they say nothing, or it cannot be read.

    No more than that is looked at: a million may be read at once (whether the rest is sound, its handling tells).

    Args:
        headers: by name.
        partition: where it lies: copies keep the partition number.
    """
    try:
        topic_id, number, origin = headers["oz_origin"].rsplit(b"/", 2)  # type: ignore[union-attr]
        hop, due = headers["oz_hop"], headers["oz_due"]
        if int(number) != partition or "oz_attempt" not in headers:
            return None
        return Mark(
            topic_id, _number(origin), (_number(headers.get("oz_redrive_no") or b"0"), _number(hop), _number(due))
        )
    except (KeyError, ValueError, AttributeError, TypeError):
        return None


def _number(text: bytes | None) -> int:
    if text is None or not text.isdigit() or len(text) > 18:
        raise ValueError(text)
    return int(text)
