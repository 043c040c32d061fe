"""Which records a replay means, in each partition: from an end of the log, an offset or a time, up to another."""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta

from confluent_kafka.admin import AdminClient, OffsetSpec

from offsetzero.consumers import reset
from offsetzero.consumers.reset import Move, Target
from offsetzero.errors import ConfigurationError, TopicError
from offsetzero.settings import Settings
from offsetzero.store.starts import Place
from offsetzero.topics import cluster, offsets
from offsetzero.topics.admin import client
from offsetzero.topics.names import Names
from offsetzero.topics.offsets import Described

_AGO = re.compile(r"-(\d{1,6})([smhdw])", re.ASCII)
_UNITS = {"s": "seconds", "m": "minutes", "h": "hours", "d": "days", "w": "weeks"}


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
        low: the first offset of the log.
        left: how many behind `end` were asked for, and are the group's own to read, for it has not come to them.
    """

    topic: str
    partition: int
    topic_id: str
    first: int
    end: int
    committed: int | None
    low: int
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


def parse(option: str, text: str, now: datetime) -> Target:
    """What `--from` or `--to` was given: `earliest`, `latest`, an offset, a time with its zone, or `-2h`.

    Raises:
        ConfigurationError: it is none of them.
    """
    if (ago := _AGO.fullmatch(text)) is not None:
        return now - timedelta(**{_UNITS[ago[2]]: int(ago[1])})
    try:
        return reset.parse(text)
    except ConfigurationError:
        raise ConfigurationError(
            f"{option} {text}: give earliest, latest, an offset, a time with its zone, such as 2026-01-31T12:00:00Z, or"
            " how long ago, such as -30m, -2h, -7d"
        ) from None


def find(
    settings: Settings,
    group: str,
    start: Target,
    end: Target | None = None,
    *,
    sources: Sequence[str] | None = None,
    topic: str | None = None,
    partition: int | None = None,
) -> list[Span]:
    """The spans of a replay, in the order of topics and partitions.

    Without `end` they go up to where the group stands: what it will read again. With one they are those of a side
    job, which never goes beyond that: the rest the group will read itself, and two that read at once would break the
    order of keys.

    Args:
        settings: name the cluster.
        group: the group's name.
        start: the first record.
        end: the first record that is not meant any more.
        sources: what the group reads; by default what it has committed offsets of.
        topic: one of them.
        partition: the partitions of one number.

    Raises:
        ConfigurationError: an offset, and more than one partition.
        TopicError: no such topic, partition, offset or group, or the cluster does not answer.
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
    log = _Log(admin, names, places, topics)
    first = log.resolve("--from", start)
    last = log.resolve("--to", end) if end is not None else None
    spans = []
    for place in places:
        held = committed.get(place)
        at = held.offset if held is not None and held.topic_id in ("", topics[place[0]].id) else None
        until = at if at is not None else log.high[place]
        asked = last[place] if last is not None else until
        span = Span(*place, topics[place[0]].id, first[place], min(asked, until), at, log.low[place])
        spans.append(span if asked <= until else _cut(span, asked))
    return spans


def _cut(span: Span, asked: int) -> Span:
    left = asked - max(span.end, span.first)
    return Span(span.topic, span.partition, span.topic_id, span.first, span.end, span.committed, span.low, max(0, left))


class _Log:
    """The ends of some partitions, and what points in the log are in each of them."""

    def __init__(
        self, admin: AdminClient, names: Names, places: Sequence[Place], topics: Mapping[str, Described]
    ) -> None:
        self._admin = admin
        self._names = names
        self._places = places
        self._topics = topics
        self.low = offsets.ends(admin, names, places, OffsetSpec.earliest())  # type: ignore[no-untyped-call]
        self.high = offsets.ends(admin, names, places, OffsetSpec.latest())  # type: ignore[no-untyped-call]

    def resolve(self, option: str, point: Target) -> Mapping[Place, int]:
        """The offset of a point in each partition."""
        if isinstance(point, datetime):
            spec = OffsetSpec.for_timestamp(round(point.timestamp() * 1000))
            found = offsets.ends(self._admin, self._names, self._places, spec)
            return {place: at if at >= 0 else self.high[place] for place, at in found.items()}
        if not isinstance(point, int):
            return self.low if point == "earliest" else self.high
        if len(self._places) != 1:
            raise ConfigurationError(f"{option} OFFSET: say of which partition, with --topic and --partition")
        (place,) = self._places
        if not self.low[place] <= point <= self.high[place]:
            raise TopicError(
                f"{place[0]}/{place[1]} has the offsets from {self.low[place]} to {self.high[place]}, not {point}"
            )
        return {place: point}
