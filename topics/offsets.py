"""What Kafka holds of a group and of its topics: committed offsets, ends of logs, ids of topics."""

import contextlib
import time
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from confluent_kafka import (
    Consumer,
    ConsumerGroupTopicPartitions,
    IsolationLevel,
    KafkaError,
    KafkaException,
    TopicCollection,
    TopicPartition,
)
from confluent_kafka.admin import AdminClient, OffsetSpec

from offsetzero.client_log import LOGGER, watched
from offsetzero.clock import SYSTEM
from offsetzero.errors import TopicError
from offsetzero.settings import Settings
from offsetzero.topics.admin import TIMEOUT, answer, error_of
from offsetzero.topics.names import Names

LEADER_SECONDS = 10.0
"""How long a partition may be without a leader before who asks for its ends is told."""
LEADER_PAUSE = 0.1
_OF_LEADERS = frozenset(
    {
        KafkaError.NOT_LEADER_FOR_PARTITION,
        KafkaError.LEADER_NOT_AVAILABLE,
        KafkaError.FENCED_LEADER_EPOCH,
        KafkaError.UNKNOWN_LEADER_EPOCH,
    }
)
_MARK = "oz:"


@dataclass(frozen=True, slots=True)
class Committed:
    """An offset that a group has committed.

    Attributes:
        offset: of the lowest record that was not done.
        topic_id: of the topic that it is meant for, empty when that is not known.
        left: the stay that ended with this commit, in good order; empty for one that goes on.
    """

    offset: int
    topic_id: str
    left: str = ""


@dataclass(frozen=True, slots=True)
class Described:
    """A topic as it is now."""

    id: str
    partitions: int


def mark(topic_id: str, left: str = "") -> str:
    """The metadata of a committed offset.

    Args:
        topic_id: of which topic it is, should that be deleted and made again.
        left: the stay that ends with it, see `Committed`.
    """
    return f"{_MARK}{topic_id}:{left}" if left else _MARK + topic_id


def committed(
    settings: Settings,
    group: str,
    partitions: Iterable[tuple[str, int]],
    *,
    stable: bool = True,
    timeout: float = TIMEOUT,
) -> dict[tuple[str, int], Committed]:
    """The committed offsets of a group, by our names; without those partitions where it has none.

    Asked by a consumer that joins no group: when a coordinator has just moved, the answer to an admin client's
    question ends the process (confluentinc/librdkafka#5040).

    Args:
        settings: name the cluster.
        group: our name of the group.
        partitions: by our names.
        stable: whether to fail while a transaction that may change them has not ended (KIP-447).
        timeout: seconds.

    Raises:
        TopicError: the cluster refuses, does not answer, or the offsets are not stable.
    """
    names = Names(settings.kafka.namespace)
    asked = [TopicPartition(names.topic(topic), number) for topic, number in partitions]
    if not asked:
        return {}
    consumer = Consumer(
        watched(
            {
                **settings.kafka.client_config(),
                "group.id": names.group(group),
                # It joins nothing: these are there for options of members that would not go together here.
                "group.protocol": "classic",
                "session.timeout.ms": 45_000,
                "max.poll.interval.ms": 300_000,
                "enable.auto.commit": False,
                "isolation.level": "read_committed" if stable else "read_uncommitted",
            }
        ),
        logger=LOGGER,
    )
    try:
        found = consumer.committed(asked, timeout)
        for one in found:
            if one.error is not None:
                raise KafkaException(one.error)
    except KafkaException as error:
        raise TopicError(f"committed offsets of {group}: {error_of(error).str()}") from error
    finally:
        consumer.close()
    return {
        (names.strip(one.topic) or one.topic, one.partition): Committed(one.offset, *_marked(one.metadata))
        for one in found
        if one.offset >= 0
    }


def alter(admin: AdminClient, names: Names, group: str, offsets: Mapping[tuple[str, int], Committed]) -> None:
    """Set the committed offsets of a group without members, all in one request.

    Raises:
        TopicError: the group has members, or the cluster refuses.
    """
    name = names.group(group)
    places = [
        TopicPartition(names.topic(topic), number, one.offset, mark(one.topic_id))
        for (topic, number), one in offsets.items()
    ]
    asked = admin.alter_consumer_group_offsets([ConsumerGroupTopicPartitions(name, places)], request_timeout=TIMEOUT)
    found = answer(asked[name], f"offsets of {group}")
    for one in found.topic_partitions or ():
        if one.error is not None:
            raise TopicError(f"offset of {group} in {names.strip(one.topic)}/{one.partition}: {one.error.str()}")


def ends(
    admin: AdminClient,
    names: Names,
    partitions: Iterable[tuple[str, int]],
    spec: OffsetSpec,
    *,
    isolation: IsolationLevel = IsolationLevel.READ_UNCOMMITTED,
    timeout: float = TIMEOUT,
) -> dict[tuple[str, int], int]:
    """The offsets that `spec` means in each partition, by our names; -1 where a time is later than all records.

    The latest one of `READ_COMMITTED` is where a transaction is open. Asked again while a partition has no leader, or
    another one than the client knows: so it is for a moment after a topic was made or a broker has ended, and the
    admin client, unlike Java's, does not ask again by itself.

    Raises:
        TopicError: the cluster refuses, or does not answer.
    """
    left = {TopicPartition(names.topic(topic), number): spec for topic, number in partitions}
    found: dict[tuple[str, int], int] = {}
    until = SYSTEM.monotonic() + LEADER_SECONDS
    while left:
        asked = admin.list_offsets(left, isolation_level=isolation, request_timeout=timeout)
        left = {}
        for one, future in asked.items():
            try:
                offset = answer(future, f"offsets of {one.topic}").offset
            except TopicError as error:
                if SYSTEM.monotonic() > until or not _is_of_leader(error.__cause__):
                    raise
                left[one] = spec
            else:
                found[names.strip(one.topic) or one.topic, one.partition] = offset
        if left:
            time.sleep(LEADER_PAUSE)
            with contextlib.suppress(KafkaException):
                admin.list_topics(timeout=timeout)  # the client's knowledge of leaders
    return found


def _is_of_leader(cause: BaseException | None) -> bool:
    return isinstance(cause, KafkaException) and error_of(cause).code() in _OF_LEADERS


def describe(
    admin: AdminClient, names: Names, topics: Sequence[str], *, timeout: float = TIMEOUT
) -> dict[str, Described]:
    """Those of the topics that exist, by our names. A topic that was deleted and made again has another id (KIP-516).

    Raises:
        TopicError: the cluster refuses, or does not answer.
    """
    by_cluster_name = {names.topic(topic): topic for topic in topics}
    if not by_cluster_name:
        return {}
    found = {}
    asked = admin.describe_topics(TopicCollection(list(by_cluster_name)), request_timeout=timeout)
    for name, future in asked.items():
        topic = by_cluster_name[name]
        try:
            one = answer(future, f"topic {topic}")
        except TopicError as error:
            if isinstance(error.__cause__, KafkaException) and (
                error_of(error.__cause__).code() == KafkaError.UNKNOWN_TOPIC_OR_PART
            ):
                continue
            raise
        found[topic] = Described(str(one.topic_id), len(one.partitions))
    return found


def _marked(metadata: str | None) -> tuple[str, str]:
    """Topic id and stay, as `mark` wrote them."""
    if not metadata or not metadata.startswith(_MARK):
        return "", ""
    topic_id, _, left = metadata.removeprefix(_MARK).partition(":")
    return topic_id, left
