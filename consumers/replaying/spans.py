"""Which records a replay means, in each partition: from an end of the log, an offset or a time, up to another."""

from collections.abc import Sequence
from dataclasses import dataclass, replace

from offsetzero.consumers import reset
from offsetzero.consumers.reset import Move
from offsetzero.errors import ConfigurationError, TopicError
from offsetzero.history.reach import Reach
from offsetzero.settings import Settings
from offsetzero.store.starts import Place
from offsetzero.topics import cluster, offsets
from offsetzero.topics.admin import client
from offsetzero.topics.names import Names
from offsetzero.topics.points import Ends, Point


@dataclass(frozen=True, slots=True)
class Span:
    """The records of one partition.

    Attributes:
        topic: by our name.
        partition: its number.
        topic_id: of the topic now.
        first: the offset of the first one.
        end: the offset behind the last one.
        committed: where the group stands; None when it has read nothing here.
        low: the first offset of the log; a span of a side job may begin before, in the archive.
        gone: how many of its offsets neither the log nor the archive has.
        left: how many behind `end` were asked for, and are the group's own to read, for it has not come to them.
    """

    topic: str
    partition: int
    topic_id: str
    first: int
    end: int
    committed: int | None
    low: int
    gone: int = 0
    left: int = 0

    @property
    def place(self) -> Place:
        """Topic and partition."""
        return self.topic, self.partition

    @property
    def records(self) -> int:
        """How many offsets it has; of transactions and compacted topics, not all of them have a record."""
        return max(0, self.end - self.first)

    @property
    def move(self) -> Move:
        """The group's position, changed to the first of them."""
        return Move(self.topic, self.partition, self.topic_id, self.committed, self.first, self.low)


def find(
    settings: Settings,
    group: str,
    start: Point,
    end: Point | None = None,
    *,
    sources: Sequence[str] | None = None,
    topic: str | None = None,
    partition: int | None = None,
) -> list[Span]:
    """The spans of a replay, in the order of topics and partitions.

    Without `end` they go up to where the group stands: what it will read again. With one they are those of a side
    job, which never goes beyond that: the rest the group will read itself, and two that read at once would break the
    order of keys. A side job reads the archive, too, so points may lie there.

    Args:
        settings: name the cluster.
        group: the group's name.
        start: the first record.
        end: the first record that is not meant any more.
        sources: what the group reads; by default what it has committed offsets of.
        topic: one of them.
        partition: the partitions of one number.

    Raises:
        ConfigurationError: an offset, and more than one partition; or the end lies before the start.
        TopicError: no such topic, partition, offset or group, or the cluster does not answer.
        HistoryError: the archive cannot be read.
    """
    admin, names = client(settings), Names(settings.kafka.namespace)
    existing = [(name, number) for name, count in cluster.partitions(settings).items() for number in range(count)]
    committed = offsets.committed(settings, group, existing, stable=False)
    wanted = sorted(sources) if sources is not None else reset.sources(group, committed)
    if topic is not None:
        if sources is not None and topic not in wanted:
            raise TopicError(f"group {group} reads {', '.join(wanted)}, not {topic}")
        wanted = [topic]
    if not wanted:
        raise TopicError(f"group {group} has read nothing yet; is that its name? See `offsetzero groups list`")
    topics = offsets.describe(admin, names, wanted)
    if missing := [name for name in wanted if name not in topics]:
        raise TopicError(f"topics {', '.join(missing)} do not exist; run `offsetzero topics apply`")
    places = sorted((name, number) for name, one in topics.items() for number in range(one.partitions))
    if partition is not None and not (places := [place for place in places if place[1] == partition]):
        raise TopicError(f"{', '.join(wanted)}: there is no partition {partition}")
    log = Ends(admin, names, places)
    reach = Reach(settings, log, places) if end is not None else None
    first = (reach or log).resolve("--from", start)
    last = reach.resolve("--to", end) if reach is not None and end is not None else None
    if last is not None and max(last[place] - first[place] for place in places) <= 0 and last != first:
        raise ConfigurationError("--to: in no partition it lies behind --from, so nothing is between them")
    spans = []
    for place in places:
        held = committed.get(place)
        at = held.offset if held is not None and held.topic_id in ("", topics[place[0]].id) else None
        until = at if at is not None else log.end[place]
        asked = last[place] if last is not None else until
        upto = min(asked, until)
        gone = reach.gone(place, first[place], upto) if reach is not None else 0
        span = Span(*place, topics[place[0]].id, first[place], upto, at, log.low[place], gone)
        spans.append(span if asked <= until else _cut(span, asked))
    return spans


def _cut(span: Span, asked: int) -> Span:
    left = asked - max(span.end, span.first)
    return replace(span, left=max(0, left))
