"""What operators have decided about single events of a group: it holds for every generation that reads the log anew."""

import hashlib
from array import array
from collections.abc import Mapping
from itertools import accumulate
from typing import Final

from offsetzero.store import generations
from offsetzero.store.script import Script

_SIZE = 16  # bytes of a digest


class Amendments:
    """Edits and discards, by source and id of the event.

    Of a discard, which an operator decides about a million events at once, only a digest of 16 bytes is kept; an edit,
    which somebody has made by hand, is kept whole.

    Args:
        edited: payloads in place of the events' own.
        discarded: the digests of those that are discarded, in their order, one behind the other.
    """

    __slots__ = ("_discarded", "_edited", "_first")

    def __init__(self, edited: Mapping[tuple[str, str], bytes], discarded: bytes = b"") -> None:
        self._edited = edited
        self._discarded = discarded
        self._first = _places(discarded) if discarded else None

    def __bool__(self) -> bool:
        return bool(self._edited or self._discarded)

    def edit_of(self, source: str, event_id: str) -> bytes | None:
        """The payload in place of that of an event; None for its own."""
        return self._edited.get((source, event_id))

    def has_discarded(self, source: str, event_id: str) -> bool:
        """Whether an event is discarded."""
        if self._first is None:
            return False
        wanted = hashlib.sha256(f"{len(source)}:{source}{event_id}".encode(errors="replace")).digest()[:_SIZE]
        begins = wanted[0] << 8 | wanted[1]
        at, end = self._first[begins], self._first[begins + 1]
        while (at := self._discarded.find(wanted, at, end)) % _SIZE:  # -1, too, is no place of a digest
            if at < 0:
                return False
            at += 1
        return True


def _places(digests: bytes) -> "array[int]":
    """Where those begin that start with two bytes, by these; and at last where all end."""
    counts = [0] * 65_537
    for at in range(0, len(digests), _SIZE):
        counts[(digests[at] << 8 | digests[at + 1]) + 1] += _SIZE
    return array("Q", accumulate(counts))


NONE: Final = Amendments({})
"""Nothing was decided."""

_EDITED = (
    "SELECT DISTINCT ON (d.source, d.event_id) d.source, d.event_id, e.edited FROM dead_letter_edits e"
    " JOIN dead_letters d USING (topic_id, partition, place) WHERE d.group_name = ANY (%s)"
    " ORDER BY d.source, d.event_id, e.action_id DESC"
)
_DISCARDED = (
    "SELECT string_agg(digest, ''::bytea ORDER BY digest) FROM (SELECT DISTINCT substring(sha256(convert_to("
    "length(d.source) || ':' || d.source || d.event_id, 'UTF8')) FOR 16) AS digest FROM dead_letter_decisions c"
    " JOIN dead_letter_actions a ON a.id = c.action_id JOIN dead_letters d USING (topic_id, partition, place)"
    " WHERE a.kind = 'discard' AND d.group_name = ANY (%s)) AS of_all"
)
_MARK = (
    "SELECT count(*), max(greatest(d.at, d.ended_at)) FROM dead_letter_actions d"
    " WHERE d.kind <> 'redrive' AND d.group_name = ANY (%s)"
)


def mark(group: str) -> Script[object]:
    """Another one whenever operators have decided something since; cheap, for who asks all the time."""
    rows = yield _MARK, ((yield from generations.names(group)),)
    return rows[0]


def of_group(group: str) -> Script[Amendments]:
    """Those of all generations of a group; of two edits the later one counts, and a discard more than an edit."""
    names = yield from generations.names(group)
    edited = yield _EDITED, (names,)
    discarded = yield _DISCARDED, (names,)
    return Amendments(
        {(row[0], row[1]): bytes(row[2]) for row in edited},
        bytes(discarded[0][0]) if discarded and discarded[0][0] is not None else b"",
    )
