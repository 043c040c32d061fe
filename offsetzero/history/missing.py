"""What a reader that begins at offset zero would not see: deleted from the log, and not in the archive either."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from datetime import datetime

from offsetzero.history.archive import Archive
from offsetzero.settings import Settings
from offsetzero.topics import retained


@dataclass(frozen=True, slots=True)
class Missing:
    """A partition whose beginning is deleted.

    Attributes:
        topic, partition: which, by our name.
        low: the first offset that the log has; all before it are deleted.
        since: the time of the record there; None when there is none.
        gaps: of what is deleted, what the archive has not got: first offset, and the one behind the last. Who reads
            the log alone misses `deleted` offsets, who reads archive and log misses `missing`.
    """

    topic: str
    partition: int
    low: int
    since: datetime | None = None
    gaps: tuple[tuple[int, int], ...] = field(default=())

    @property
    def deleted(self) -> int:
        """Offsets that the log has no more."""
        return self.low

    @property
    def missing(self) -> int:
        """Offsets that nobody has: neither the log nor the archive."""
        return sum(end - first for first, end in self.gaps)

    @property
    def archived(self) -> int:
        """Offsets that only the archive has."""
        return self.deleted - self.missing

    def __str__(self) -> str:
        begins = f"its first record is of {self.since:%Y-%m-%d %H:%M:%SZ}" if self.since else "it has no record"
        gone = f"the {self.deleted:,} offsets before {self.low} are deleted"
        if self.archived and not self.missing:
            gone += ", all of them are in the archive"
        elif self.archived:
            shown = ", ".join(f"{first} to {end - 1}" for first, end in self.gaps)
            gone += f", the archive has {self.archived:,} of them, nobody has {shown}"
        return f"{self.topic}/{self.partition}: {gone}; {begins}"


def from_zero(settings: Settings, topics: Iterable[str]) -> list[Missing]:
    """The partitions whose beginning is deleted, with what the archive has of it.

    Compaction is not told: it keeps the last record of each key, and no offset says what it took.

    Args:
        settings: name the cluster and the object store.
        topics: the sources of a group, by our names (`group.topics()`).

    Returns:
        None of them means that all is there. Of one with `missing` 0 the archive has all that the log has not.

    Raises:
        TopicError: a topic does not exist, or the cluster does not answer.
        HistoryError: a manifest of the archive cannot be read.
    """
    found = []
    for topic in topics:
        cut = [one for one in retained.retained(settings, topic) if one.low]
        archive = Archive(settings, topic) if cut else None
        for one in cut:
            kept = [(it.first, it.end) for it in archive.segments(one.partition)] if archive is not None else []
            found.append(Missing(topic, one.partition, one.low, one.since, tuple(gaps(one.low, kept))))
    return found


def gaps(end: int, kept: Sequence[tuple[int, int]], begin: int = 0) -> list[tuple[int, int]]:
    """What spans leave open of the offsets from `begin` to before `end`; they may overlap, and reach beyond these."""
    found, at = [], begin
    for first, behind in sorted(one for one in kept if one[0] < one[1]):
        if at < min(first, end):
            found.append((at, min(first, end)))
        at = max(at, behind)
    if at < end:
        found.append((at, end))
    return found
