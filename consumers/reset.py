"""Give a stopped group other positions: Kafka's committed offsets, and what is recorded of its beginning."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import psycopg

from offsetzero.errors import ConfigurationError, GroupStopped, TopicError
from offsetzero.generation import Generation
from offsetzero.settings import Settings
from offsetzero.store import positions, starts
from offsetzero.store.positions import Position
from offsetzero.store.script import run
from offsetzero.store.starts import Place, Start
from offsetzero.topics import cluster, lag, offsets, points
from offsetzero.topics.admin import client
from offsetzero.topics.catalogue import GROUPS
from offsetzero.topics.lag import GroupState
from offsetzero.topics.names import Names
from offsetzero.topics.offsets import Committed, Described
from offsetzero.topics.points import Point

STOPPED = frozenset({"empty", "dead"})
"""States of a group without members; see `lag.GroupState`."""


@dataclass(frozen=True, slots=True)
class Move:
    """What would change in one partition.

    Attributes:
        topic: by our name.
        partition: its number.
        topic_id: of the topic now.
        old: the committed offset; None when there is none, or it was one of a topic that was deleted.
        new: the one to commit.
        low: the first offset of the log.
    """

    topic: str
    partition: int
    topic_id: str
    old: int | None
    new: int
    low: int

    @property
    def skipped(self) -> int:
        """Offsets that the group will never read."""
        return max(0, self.new - max(self.old or 0, self.low))

    @property
    def repeated(self) -> int:
        """Offsets that it will read again."""
        return max(0, self.old - self.new) if self.old is not None else 0


def plan(
    settings: Settings, group: str, to: Point, topic: str | None = None, partition: int | None = None
) -> list[Move]:
    """What would change.

    Args:
        settings: name the cluster.
        group: the group's name.
        to: where it shall go on.
        topic: one topic; by default the group's sources, not its retry topics: what waits there must not be skipped.
        partition: one partition of that topic.

    Raises:
        ConfigurationError: the arguments do not go together.
        GroupStopped: the group has members, or nobody says that it has none.
        TopicError: no such topic, offset or group, or the cluster does not answer.
    """
    if partition is not None and topic is None:
        raise ConfigurationError("--partition: say of which topic, with --topic")
    if isinstance(to, int) and partition is None:
        raise ConfigurationError("--to OFFSET: say of which partition, with --topic and --partition")
    check_stopped(lag.group_state(settings, group))
    admin, names = client(settings), Names(settings.kafka.namespace)
    existing = [(name, number) for name, count in cluster.partitions(settings).items() for number in range(count)]
    committed = offsets.committed(settings, group, existing, stable=False)
    wanted = [topic] if topic is not None else sources(group, committed)
    if not wanted:
        raise TopicError(f"group {group} has read nothing yet; name a topic with --topic")
    topics = offsets.describe(admin, names, wanted)
    if missing := [name for name in wanted if name not in topics]:
        raise TopicError(f"topics {', '.join(missing)} do not exist; run `offsetzero topics apply`")
    places = [(name, number) for name, one in topics.items() for number in range(one.partitions)]
    if partition is not None and (places := [place for place in places if place[1] == partition]) == []:
        raise TopicError(f"topic {topic} has no partition {partition}")
    log = points.Ends(admin, names, places)
    new = log.resolve("--to", to)
    return [_move(one, topics[one[0]], committed.get(one), new[one], log.low[one]) for one in sorted(places)]


def apply(settings: Settings, group: str, moves: Sequence[Move]) -> None:
    """Do it: first in Kafka, in one request, then in the database, in one transaction.

    Ended between the two, the group either goes on where it was sent, or, when a topic was made again, stops as
    before: what is recorded names the topic that is gone, and the same command again mends it. A projection goes on
    where it was.

    Raises:
        TopicError: the group has members, or the cluster refuses.
        psycopg.Error: the database refuses, or does not answer.
    """
    admin, names = client(settings), Names(settings.kafka.namespace)
    url = settings.database_url.get_secret_value()
    if not url:
        offsets.alter(admin, names, group, _commits(moves))
        return
    with psycopg.connect(url, connect_timeout=10) as connection:
        recorded = run(connection, starts.of_group(group))
        connection.commit()
        offsets.alter(admin, names, group, _commits(moves))
        if recorded:  # else it has no database, or is new and will take over what Kafka has
            rows = {(one.topic, one.partition): Start(one.topic_id, one.new, committed=True) for one in moves}
            run(connection, starts.replace(group, rows))
        generation = Generation.named(group)
        if run(connection, positions.of_generation(generation)):  # a projection, whose own positions decide
            moved = {(one.topic, one.partition): Position(one.topic_id, one.new) for one in moves}
            run(connection, positions.replace(generation, moved))


def check_stopped(found: GroupState) -> None:
    """See that a group is known to have no members.

    Raises:
        GroupStopped: it has some, or its state, as the client tells it, does not say.
    """
    known = "" if found.state == "unknown" else f" (it is {found.state})"
    if found.members or (known and found.state not in STOPPED):
        raise GroupStopped(f"group {found.group} has members{known}: stop them first")
    if not known:
        raise GroupStopped(
            f"group {found.group}: its coordinator does not say whether it has stopped; stop its members, and try "
            f"again when `offsetzero groups list {found.group}` shows it as empty"
        )


def _commits(moves: Sequence[Move]) -> Mapping[Place, Committed]:
    return {(one.topic, one.partition): Committed(one.new, one.topic_id) for one in moves}


def sources(group: str, committed: Mapping[Place, Committed]) -> list[str]:
    """The topics that a group reads, but for its own: those that it has committed offsets of, or is known to read."""
    found = {topic for topic, _ in committed} | set(GROUPS.get(group, ()))
    return sorted(topic for topic in found if not topic.startswith(f"{group}."))


def _move(place: Place, topic: Described, held: Committed | None, new: int, low: int) -> Move:
    old = held.offset if held is not None and held.topic_id in ("", topic.id) else None
    return Move(place[0], place[1], topic.id, old, new, low)
