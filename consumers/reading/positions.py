"""Where a partition is read from, or why it cannot be: decided from facts, with no I/O (design section 6).

Nothing is ever skipped in silence: Kafka's own clients go to an end of the log when they do not know where they were,
or were where no log is any more (quix-streams#1114, franz-go#1428, librdkafka#1442).
"""

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass

from offsetzero.consumers.record import OwnedPartition
from offsetzero.errors import LostBecause, PositionLost
from offsetzero.generation import Generation
from offsetzero.store.forced import Forced
from offsetzero.store.holds import Hold
from offsetzero.store.positions import Position
from offsetzero.store.starts import Place, Start


@dataclass(frozen=True, slots=True)
class Facts:
    """What is known of one partition for one group.

    Attributes:
        topic_id: of the topic now; None when there is no such topic.
        low: the first offset of the log.
        high: the high watermark.
        committed: the offset that Kafka holds for the group.
        committed_id: the id of the topic that it was committed for, empty when that is not known.
        committed_by: the stay that ended with that commit, in good order; empty when none did.
        start: what is recorded of its beginning.
        stay: the name of the stay that begins now; empty in a group without a database.
        holds: the keys of a source that are held.
        kept: where a projection is, by its database: that decides, and what Kafka holds follows.
        forced: what of its records is to be handled again; None for nothing.
    """

    topic_id: str | None
    low: int = 0
    high: int = 0
    committed: int | None = None
    committed_id: str = ""
    start: Start | None = None
    committed_by: str = ""
    stay: str = ""
    holds: Sequence[Hold] = ()
    kept: Position | None = None
    forced: Forced | None = None

    @property
    def died(self) -> bool:
        """Whether the member that has read it last did not leave it in good order.

        An offset that names no topic was set by somebody else's tool since.
        """
        before = self.start.stay if self.start is not None else None
        is_ours = self.committed is None or bool(self.committed_id)
        return before is not None and before != self.committed_by and is_ours


def births(
    wanted: Iterable[Place],
    known: Mapping[Place, Start],
    committed: Collection[Place],
    facts: Mapping[Place, Facts],
    latest: Collection[str],
) -> dict[Place, Start]:
    """The starts to record of partitions that have none: all those of a group at once, at its first assignment.

    A group is new when nothing is recorded of it and it has committed nothing. Only then the declared start holds,
    and only in its sources; what comes later begins at its beginning.

    Args:
        wanted: all partitions of the group's topics.
        known: what is recorded of the group.
        committed: where Kafka holds an offset of it.
        facts: of those that have no start.
        latest: the sources, for a group that starts at the latest; else nothing.
    """
    is_new = not known and not committed
    made = {}
    for place in wanted:
        if place in known or (fact := facts.get(place)) is None or fact.topic_id is None:
            continue
        if fact.committed is not None:  # of a group that is older than its rows
            made[place] = Start(fact.topic_id, fact.committed, committed=True)
        else:
            offset = fact.high if is_new and place[0] in latest else fact.low
            made[place] = Start(fact.topic_id, offset, committed=False)
    return made


def decide(group: str, stay: OwnedPartition, facts: Facts, at: int | None = None) -> int:
    """The offset to read on from.

    Args:
        group: for messages.
        stay: the partition; its topic's id is that of the start of this process.
        facts: what is known.
        at: where the member itself was, in a partition that has been with it all the time.

    Raises:
        PositionLost: there is none.
    """
    check_topic(group, stay, facts)
    name = _typed(group, facts)
    if at is None and facts.kept is not None:
        at = facts.kept.offset
    if at is None and (at := facts.committed) is None:
        if facts.start is not None and facts.start.committed:
            raise _expired(group, stay, facts)
        at = facts.start.offset if facts.start is not None else facts.low
    if at < facts.low:
        raise PositionLost(
            f"group {group}: {stay} was read up to offset {at}, and its log begins at {facts.low}: the records from"
            f" {at} to {facts.low - 1} are gone. Nothing was skipped; go on behind the gap with"
            f" `{reset(name, 'earliest', stay)}`",
            LostBecause.BELOW_START,
            stay.topic,
            stay.partition,
            (at, facts.low),
        )
    if at > facts.high:
        raise PositionLost(
            f"group {group}: {stay} was read up to offset {at}, and its log ends at {facts.high}: the offsets from"
            f" {facts.high} to {at - 1} are not in it. Nothing was skipped; go on with what comes with"
            f" `{reset(name, 'latest', stay)}`, or read all again with `{reset(name, 'earliest', stay)}`",
            LostBecause.ABOVE_END,
            stay.topic,
            stay.partition,
            (facts.high, at),
        )
    return at


def within(facts: Facts, target: int) -> int:
    """Where a replay begins that was asked for an offset: there, or at the end of the log that is nearer.

    The log may have become shorter at its beginning since it was asked for.
    """
    return min(max(target, facts.low), facts.high)


def first_kept(facts: Facts) -> Position | None:
    """The position that the database gets of a partition of which it has none; None when it is not known.

    Of a group that is older than these positions it is the one that Kafka holds.
    """
    if facts.topic_id is None:
        return None
    if facts.committed is not None:
        is_of_this = facts.committed_id in ("", facts.topic_id)
        return Position(facts.topic_id, facts.committed) if is_of_this else None
    if facts.start is None or facts.start.committed or facts.start.topic_id != facts.topic_id:
        return None
    return Position(facts.topic_id, facts.start.offset)


def check_topic(group: str, stay: OwnedPartition, facts: Facts) -> None:
    """See that the topic is the one that the group has read.

    Raises:
        PositionLost: it is gone, or another one has its name.
    """
    if facts.topic_id is None:
        raise deleted(group, stay.topic, _typed(group, facts))
    known = [stay.topic_id, facts.committed_id, facts.start.topic_id if facts.start else ""]
    known += [facts.kept.topic_id] if facts.kept else []
    for before in known:
        if before and before != facts.topic_id:
            raise recreated(group, stay.topic, before, facts.topic_id, _typed(group, facts))


def deleted(group: str, topic: str, typed: str = "") -> PositionLost:
    """The error of a topic that is gone.

    Args:
        group: as Kafka knows it.
        topic: by our name.
        typed: what people type for that group, where it is something else.
    """
    command = reset(typed or group, "earliest", topic=topic)
    return PositionLost(
        f"group {group}: topic {topic} does not exist any more. Make it again with `offsetzero topics apply` (a group"
        f" makes its own when it starts), then go on with `{command}`",
        LostBecause.DELETED,
        topic,
    )


def recreated(group: str, topic: str, before: str, now: str, typed: str = "") -> PositionLost:
    """The error of a topic that another one has taken the name of; arguments as those of `deleted`, and its ids."""
    return PositionLost(
        f"group {group}: topic {topic} was deleted and made again (its id was {before} and is {now}): the offsets of"
        f" the group belong to the old one. Read the new one with"
        f" `{reset(typed or group, 'earliest', topic=topic)}`",
        LostBecause.RECREATED,
        topic,
    )


def reset(group: str, to: str, stay: OwnedPartition | None = None, topic: str = "") -> str:
    """The command that gives a group another position."""
    where = f" --topic {stay.topic} --partition {stay.partition}" if stay is not None else f" --topic {topic}"
    return f"offsetzero groups reset {group} --to {to}{where} --yes"


def _typed(group: str, facts: Facts) -> str:
    """What people type for a group. The name of a projection alone is the generation that is read, whichever it is."""
    return group if facts.kept is None else Generation.named(group).typed


def _expired(group: str, stay: OwnedPartition, facts: Facts) -> PositionLost:
    begun = facts.start.offset if facts.start else 0
    command = reset(_typed(group, facts), "earliest", stay)
    return PositionLost(
        f"group {group}: {stay} was begun at offset {begun}, and Kafka holds no committed offset of it any more"
        f" (expired, or deleted): how far it was read is not known. Its log has the offsets from {facts.low} to"
        f" {facts.high - 1}; read them again with `{command}`, or from where you know with --to OFFSET",
        LostBecause.EXPIRED,
        stay.topic,
        stay.partition,
        (facts.low, facts.high),
    )
