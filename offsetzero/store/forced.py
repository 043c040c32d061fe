"""What groups were told to do once more: parts of the log whose events count in a later generation (`forced_spans`).

A group that is no projection is one consumer group with one set of retry topics for good. Its generations are outcomes
alone: an event has its outcome in the last generation that was opened for a part of the log in which its record is, and
in the first one otherwise. So what is done stays done outside of that part, whatever is delivered twice, and what waits
in a retry topic is handled once, in the generation of the record that it was made of.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from offsetzero.store import amendments, generations
from offsetzero.store.amendments import Amendments
from offsetzero.store.script import Script

FIRST = 2
"""The number of the first one that is opened: 1 is what a group does without."""


@dataclass(frozen=True, slots=True)
class ForcedSpan:
    """Part of a partition that is handled again.

    Attributes:
        generation: in which its events have their outcomes.
        topic_id: of the source topic.
        partition: its number.
        first: the offset of the first record.
        end: the offset behind the last one.
        key: of the records that are meant, None for all.
        event_type: of those, likewise.
    """

    generation: int
    topic_id: str
    partition: int
    first: int
    end: int
    key: bytes | None = None
    event_type: str | None = None

    def has(self, topic_id: str, partition: int, offset: int, key: bytes | None, event_type: str | None) -> bool:
        """Whether it means a record, by where that was first appended; one that cannot be read has no type."""
        return (
            self.first <= offset < self.end
            and (topic_id, partition) == (self.topic_id, self.partition)
            and self.key in (None, key)
            and self.event_type in (None, event_type)
        )


@dataclass(frozen=True, slots=True)
class Forced:
    """All that was opened of a group, or of some of its partitions. Pure.

    Attributes:
        spans: what.
        amendments: what operators have decided about events, which holds when they are read again.
    """

    spans: Sequence[ForcedSpan]
    amendments: Amendments = amendments.NONE

    def generation_of(
        self, topic_id: str, partition: int, offset: int, key: bytes | None, event_type: str | None
    ) -> int:
        """In which generation the event of a record has its outcome.

        Args:
            topic_id: of the topic that the record was first appended to.
            partition: there.
            offset: there.
            key: of the record.
            event_type: None for what has none, or cannot be read.
        """
        meant = (one.generation for one in self.spans if one.has(topic_id, partition, offset, key, event_type))
        return max(meant, default=1)

    def of_partition(self, number: int) -> "Forced | None":
        """What concerns records of one partition number; None when nothing does."""
        spans = [one for one in self.spans if one.partition == number]
        return Forced(spans, self.amendments) if spans else None


_SELECT = (
    "SELECT generation, topic_id, partition, first_offset, end_offset, key, event_type FROM forced_spans"
    " WHERE group_name = %s ORDER BY generation, topic_id, partition"
)
_INSERT = (
    "INSERT INTO forced_spans (group_name, generation, topic_id, partition, first_offset, end_offset, key, event_type)"
    " SELECT %s, %s, topic_id, partition, first_offset, end_offset, %s, %s"
    " FROM unnest(%s::text[], %s::int[], %s::bigint[], %s::bigint[]) AS s (topic_id, partition, first_offset,"
    " end_offset)"
)
OF_LETTER = (
    "CASE WHEN (SELECT EXISTS (SELECT FROM forced_spans)) THEN"
    " (SELECT max(s.generation) FROM forced_spans s WHERE s.group_name = l.group_name"
    " AND s.topic_id = l.origin_topic_id AND s.partition = l.origin_partition AND s.first_offset <= l.origin_offset"
    " AND l.origin_offset < s.end_offset AND (s.key IS NULL OR s.key = convert_to(l.key, 'UTF8'))"
    " AND (s.event_type IS NULL OR s.event_type = l.event_type)) END"
)
"""`generation_of` in SQL, of the dead letter `l`; NULL where it is the group's own.

Whether anything was ever forced is asked once, not for each of a million letters.
"""


def of_group(group: str) -> Script[Forced | None]:
    """What was opened of a group; None for nothing, as it almost always is.

    Args:
        group: its name, without a generation.
    """
    rows = yield _SELECT, (group,)
    if not rows:
        return None
    spans = [ForcedSpan(*row) for row in rows]
    return Forced(spans, (yield from amendments.of_group(group)))


def open_generation(
    group: str,
    spans: Iterable[tuple[str, int, int, int]],
    key: bytes | None = None,
    event_type: str | None = None,
) -> Script[int]:
    """Open a generation of a group that is no projection, in a transaction.

    Members learn of it when they next ask where a partition is read from: so nothing of these spans may be read before.

    Args:
        group: its name.
        spans: topic ids, partitions, the first offsets, and those behind the last.
        key: of the records that are meant, None for all.
        event_type: of those, likewise.

    Returns:
        Its number; no other has had it.
    """
    yield from generations.hold_pointer(group)  # another one that is opened now has another number
    number = max(FIRST, (yield from generations.next_number(group)))
    yield from generations.note(group, number)
    columns: Mapping[int, list[object]] = {part: [] for part in range(4)}
    for span in spans:
        for part, value in enumerate(span):
            columns[part].append(value)
    yield _INSERT, (group, number, key, event_type, *columns.values())
    return number
