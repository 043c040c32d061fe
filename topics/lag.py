"""Where a consumer group stands: committed offsets, lag in records, members and what they are assigned."""

import threading
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from confluent_kafka import KafkaError, KafkaException
from confluent_kafka.admin import AdminClient, OffsetSpec

from offsetzero.clock import SYSTEM
from offsetzero.errors import TopicError
from offsetzero.generation import Generation
from offsetzero.settings import Settings
from offsetzero.topics import cluster, offsets
from offsetzero.topics.admin import TIMEOUT, answer, client, error_of, metadata
from offsetzero.topics.catalogue import DLQ, GROUPS, LISTENERS, Kind, find
from offsetzero.topics.names import Names

# A coordinator that has just started, or moved: it answers a moment later.
_PASSING = frozenset(
    {
        KafkaError.COORDINATOR_LOAD_IN_PROGRESS,
        KafkaError.COORDINATOR_NOT_AVAILABLE,
        KafkaError.NOT_COORDINATOR,
    }
)
_PAUSE_SECONDS = 0.1
_NO_GROUP = frozenset({KafkaError.GROUP_ID_NOT_FOUND, KafkaError.INVALID_GROUP_ID})


@dataclass(frozen=True, slots=True)
class PartitionLag:
    """One partition for one group. `low` and `high` are its first offset and its high watermark.

    `committed` is None when the group never committed here.
    """

    topic: str
    partition: int
    committed: int | None
    low: int
    high: int

    @property
    def lag(self) -> int:
        """Offsets from the group's position to the high watermark.

        A group without a position, or with one that is not in the log any more, begins at `low`.
        """
        return lag(self.committed, self.low, self.high)


@dataclass(frozen=True, slots=True)
class Member:
    """One consumer of a group. `assignment` holds (topic, partition) by our names."""

    id: str
    client_id: str
    host: str
    assignment: tuple[tuple[str, int], ...]


@dataclass(frozen=True, slots=True)
class GroupState:
    """A group as its coordinator sees it.

    Attributes:
        group: our name of it.
        state: Kafka's word in lower case; `dead` for a group that there is not, and `unknown` where the client has no
            word for what Kafka says: of a group of KIP-848 whose members are being assigned their partitions.
        protocol: `consumer` (KIP-848) or `classic`; empty for a group that there is not.
        members: its consumers.
    """

    group: str
    state: str
    protocol: str
    members: tuple[Member, ...]


def lag(committed: int | None, low: int, high: int) -> int:
    """Offsets that a group still has before it, never negative."""
    position = low if committed is None or committed < low else committed
    return max(0, high - position)


def group_offsets(
    settings: Settings, group: str, topics: Sequence[str] | None = None, *, assigned: Iterable[str] = ()
) -> list[PartitionLag]:
    """Committed offset and lag of a group in every partition that it reads, in order.

    Args:
        settings: names the cluster.
        group: our name of the group, without namespace.
        topics: what it reads, by our names. By default the declared sources, the group's own topics except
            its dead letters, what its members are assigned, and whatever it has committed; no changelogs,
            which no group has a position in.
        assigned: topics that its members are assigned, by our names (see `group_state`).

    Raises:
        TopicError: the cluster does not answer.
    """
    admin, prefix = client(settings), Names(settings.kafka.namespace)
    existing = cluster.partitions(settings)
    every = [(name, number) for name, count in existing.items() for number in range(count)]
    wanted = set(topics) if topics is not None else _topics_of(group, existing) | set(assigned)
    asked = [place for place in every if topics is None or place[0] in wanted]
    found = offsets.committed(settings, group, asked, stable=False)
    committed = {place: one.offset for place, one in found.items()}
    partitions = {place for place in every if place[0] in wanted or place in committed}
    if topics is None:
        changelogs = {name for name in existing if (known := find(name)) is not None and known.kind is Kind.CHANGELOG}
        partitions = {place for place in partitions if place[0] not in changelogs}
    low = offsets.ends(admin, prefix, partitions, OffsetSpec.earliest())  # type: ignore[no-untyped-call]
    high = offsets.ends(admin, prefix, partitions, OffsetSpec.latest())  # type: ignore[no-untyped-call]
    return [
        PartitionLag(topic, number, committed.get((topic, number)), low[topic, number], high[topic, number])
        for topic, number in sorted(partitions)
    ]


def group_state(settings: Settings, group: str, admin: AdminClient | None = None) -> GroupState:
    """The members of a group and their assignments.

    Args:
        settings: names the cluster.
        group: our name of the group.
        admin: asks; by default a client for this one question.

    Raises:
        TopicError: the cluster does not answer.
    """
    prefix = Names(settings.kafka.namespace)
    name = prefix.group(group)
    admin = admin or client(settings)  # kept until the answer is there: its end would end the request
    metadata(admin, settings)
    deadline = SYSTEM.monotonic() + TIMEOUT
    while True:
        future = admin.describe_consumer_groups([name], request_timeout=TIMEOUT)[name]
        try:
            found = answer(future, f"group {group}")
            break
        except TopicError as error:
            code = error_of(error.__cause__).code() if isinstance(error.__cause__, KafkaException) else None
            if code in _NO_GROUP:
                return GroupState(group, "dead", "", ())
            if code not in _PASSING or SYSTEM.monotonic() > deadline:
                raise
        threading.Event().wait(_PAUSE_SECONDS)
    members = tuple(
        Member(
            id=member.member_id,
            client_id=member.client_id,
            host=member.host,
            assignment=tuple(
                sorted(
                    (prefix.strip(one.topic) or one.topic, one.partition) for one in member.assignment.topic_partitions
                )
            ),
        )
        for member in found.members
    )
    return GroupState(group, found.state.name.lower(), found.type.name.lower(), members)


def groups(settings: Settings) -> list[str]:
    """Our names of all consumer groups that the cluster knows in the namespace.

    Raises:
        TopicError: the cluster does not answer.
    """
    prefix = Names(settings.kafka.namespace)
    admin = client(settings)
    metadata(admin, settings)
    found = answer(admin.list_consumer_groups(request_timeout=TIMEOUT), "list of groups")
    if found.errors and not found.valid:
        raise TopicError(f"list of groups: {error_of(found.errors[0]).str()}")
    return sorted(name for one in found.valid if (name := prefix.strip(one.group_id)) is not None)


def _topics_of(group: str, existing: Iterable[str]) -> set[str]:
    own = {name for name in existing if name.startswith(f"{group}.") and name != f"{group}.{DLQ}"}
    owners = {name: Generation.named(name.rpartition(".")[0]) for name in own}
    own -= {name for name, owner in owners.items() if owner.group == group and owner.name != group}  # later generations
    return own | set({**GROUPS, **LISTENERS}.get(group, ()))
