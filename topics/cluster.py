"""Reads the topics of a cluster, and makes a plan true: returns when the metadata shows it."""

import logging
import threading
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from confluent_kafka import KafkaError, KafkaException, TopicPartition
from confluent_kafka.admin import (
    AdminClient,
    AlterConfigOpType,
    ConfigEntry,
    ConfigResource,
    NewPartitions,
    NewTopic,
    OffsetSpec,
    ResourceType,
)

from offsetzero.clock import SYSTEM
from offsetzero.errors import TopicError
from offsetzero.settings import Settings
from offsetzero.topics import offsets
from offsetzero.topics.admin import TIMEOUT, answer, client, error_of, metadata
from offsetzero.topics.catalogue import Topic
from offsetzero.topics.names import Names
from offsetzero.topics.plan import AddPartitions, AlterConfig, CreateTopic, Plan, TopicState, make_plan

_log = logging.getLogger(__name__)
_POLL_SECONDS = 0.05


def partitions(settings: Settings, admin: AdminClient | None = None) -> dict[str, int]:
    """The partition count of every topic in the namespace, by our names.

    Args:
        settings: names the cluster.
        admin: asks; by default a client for this one question.

    Raises:
        TopicError: the cluster does not answer.
    """
    return {name: len(topic.partitions) for name, topic in _topics(admin or client(settings), settings).items()}


def read(settings: Settings, wanted: Iterable[str]) -> dict[str, TopicState]:
    """The state of those of the wanted topics that exist, by our names.

    Raises:
        TopicError: the cluster does not answer.
    """
    admin, prefix = client(settings), Names(settings.kafka.namespace)
    found = {name: topic for name, topic in _topics(admin, settings).items() if name in set(wanted)}
    if not found:
        return {}
    resources = {ConfigResource(ResourceType.TOPIC, prefix.topic(name)): name for name in found}
    asked = admin.describe_configs(list(resources), request_timeout=TIMEOUT)
    states = {}
    for resource, future in asked.items():
        name = resources[resource]
        entries = answer(future, f"configuration of {name}")
        config = {key: entry.value for key, entry in entries.items() if entry.value is not None}
        numbered = found[name].partitions
        replication = min((len(one.replicas) for one in numbered.values()), default=0)
        states[name] = TopicState(name, len(numbered), replication, config)
    return states


def apply(settings: Settings, plan: Plan) -> None:
    """Do what the plan says, in its order, and return when the metadata shows it.

    A topic that somebody else has made meanwhile counts as made.

    Raises:
        TopicError: the plan has refusals (then nothing is done), or the cluster refused a step.
    """
    if plan.refusals:
        raise TopicError("the plan is refused:\n" + "\n".join(f"  {refusal}" for refusal in plan.refusals))
    admin, prefix = client(settings), Names(settings.kafka.namespace)
    creates = [action for action in plan.actions if isinstance(action, CreateTopic)]
    _create(admin, prefix, [action.topic for action in creates])
    alters = [action for action in plan.actions if isinstance(action, AlterConfig)]
    _alter(admin, prefix, alters)
    _await_configs(settings, alters)
    grown = [action for action in plan.actions if isinstance(action, AddPartitions)]
    for action in grown:
        request = NewPartitions(prefix.topic(action.name), action.new)
        for future in admin.create_partitions([request], request_timeout=TIMEOUT).values():
            answer(future, f"partitions of {action.name}")
    counts = {action.topic.name: action.topic.partitions for action in creates}
    counts.update({action.name: action.new for action in grown})
    _await(admin, settings, counts)


def ensure(settings: Settings, topics: Sequence[Topic]) -> None:
    """Make those of the topics that are missing; what exists is not changed.

    Raises:
        TopicError: an existing one cannot be used as it is declared.
    """
    resolved = [topic.resolved(settings) for topic in topics]
    plan = make_plan(resolved, read(settings, [topic.name for topic in resolved]))
    for action in plan.actions:
        if isinstance(action, AlterConfig):
            _log.warning("topic differs from its declaration: %s; `offsetzero topics apply` mends it", action)
    creates = tuple(action for action in plan.actions if isinstance(action, CreateTopic))
    apply(settings, Plan(creates, plan.refusals))


def partition_count(settings: Settings, sources: Sequence[str]) -> int:
    """The one partition count of a group's sources on the cluster.

    Raises:
        TopicError: a source does not exist, or their counts differ.
    """
    found = partitions(settings)
    missing = [name for name in sources if name not in found]
    if missing:
        raise TopicError(f"topics {', '.join(missing)} do not exist; run `offsetzero topics apply`")
    counts = {name: found[name] for name in sources}
    if len(set(counts.values())) != 1:
        raise TopicError(f"the sources of one group need one partition count, not {counts}")
    return next(iter(counts.values()))


def short(settings: Settings, wanted: Iterable[str]) -> set[tuple[str, int]]:
    """The partitions that take no records that all in-sync replicas must have: none leads, or too few are in sync.

    Args:
        wanted: topics, by our names.

    Raises:
        TopicError: the cluster does not answer.
    """
    admin, prefix = client(settings), Names(settings.kafka.namespace)
    found = {name: topic for name, topic in _topics(admin, settings).items() if name in set(wanted)}
    if not found:
        return set()
    resources = {ConfigResource(ResourceType.TOPIC, prefix.topic(name)): name for name in found}
    missing = set()
    for resource, future in admin.describe_configs(list(resources), request_timeout=TIMEOUT).items():
        name = resources[resource]
        least = int(answer(future, f"configuration of {name}")["min.insync.replicas"].value)
        for number, partition in found[name].partitions.items():
            # More than there are replicas is never asked for (Kafka 4).
            if partition.leader < 0 or len(partition.isrs) < min(least, len(partition.replicas)):
                missing.add((name, number))
    return missing


def topic_ids(settings: Settings, wanted: Sequence[str]) -> dict[str, str]:
    """The id of each topic, by our names: a topic that was deleted and made again has another one (KIP-516).

    Raises:
        TopicError: one does not exist.
    """
    admin = client(settings)  # kept until the answers are there: its end would end the requests
    found = offsets.describe(admin, Names(settings.kafka.namespace), wanted)
    if missing := [name for name in wanted if name not in found]:
        raise TopicError(f"topics {', '.join(missing)} do not exist")
    return {name: found[name].id for name in wanted}


def _topics(admin: AdminClient, settings: Settings) -> dict[str, Any]:
    """Metadata of the topics in the namespace, by our names."""
    prefix = Names(settings.kafka.namespace)
    return {
        name: topic
        for cluster_name, topic in metadata(admin, settings).topics.items()
        if (name := prefix.strip(cluster_name)) is not None and not name.startswith("__")
    }


def _create(admin: AdminClient, prefix: Names, topics: Sequence[Topic]) -> None:
    if not topics:
        return
    requests = [
        NewTopic(
            prefix.topic(topic.name),
            num_partitions=topic.partitions,
            replication_factor=topic.replication,
            config=dict(topic.config),
        )
        for topic in topics
    ]
    for name, future in admin.create_topics(requests, request_timeout=TIMEOUT).items():
        try:
            answer(future, f"create {prefix.strip(name)}")
        except TopicError as error:
            cause = error.__cause__
            if not isinstance(cause, KafkaException) or error_of(cause).code() != KafkaError.TOPIC_ALREADY_EXISTS:
                raise


def _alter(admin: AdminClient, prefix: Names, actions: Sequence[AlterConfig]) -> None:
    if not actions:
        return
    requests = [
        ConfigResource(
            ResourceType.TOPIC,
            prefix.topic(action.name),
            incremental_configs=[
                ConfigEntry(change.key, change.new, incremental_operation=AlterConfigOpType.SET)
                for change in action.changes
            ],
        )
        for action in actions
    ]
    for resource, future in admin.incremental_alter_configs(requests, request_timeout=TIMEOUT).items():
        answer(future, f"configure {prefix.strip(resource.name)}")


def _await_configs(settings: Settings, actions: Sequence[AlterConfig]) -> None:
    """Wait until the broker that answers shows the changes: it follows the controller's log a moment later."""
    deadline = SYSTEM.monotonic() + TIMEOUT
    pause = threading.Event()
    wanted = {action.name: {change.key: change.new for change in action.changes} for action in actions}
    while wanted:
        states = read(settings, wanted)
        shown = [
            name
            for name, config in wanted.items()
            if name in states and all(states[name].config.get(key) == value for key, value in config.items())
        ]
        for name in shown:
            del wanted[name]
        if wanted:
            if SYSTEM.monotonic() > deadline:
                raise TopicError(f"configuration of {', '.join(wanted)}: not shown within {TIMEOUT:g} s; apply again")
            pause.wait(_POLL_SECONDS)


def _await(admin: AdminClient, settings: Settings, counts: Mapping[str, int]) -> None:
    """Wait until the leader of every partition answers.

    Metadata names a leader a moment before that broker knows it, and would still say "not leader".
    """
    deadline = SYSTEM.monotonic() + TIMEOUT
    prefix = Names(settings.kafka.namespace)
    pause = threading.Event()
    waiting = {TopicPartition(prefix.topic(name), number) for name, count in counts.items() for number in range(count)}
    while waiting:
        known = _with_leaders(admin, settings)
        asked = {one: OffsetSpec.latest() for one in waiting if one in known}  # type: ignore[no-untyped-call]
        if asked:
            answers = admin.list_offsets(asked, request_timeout=TIMEOUT)
            waiting -= {one for one, future in answers.items() if future.exception(TIMEOUT) is None}
        if waiting:
            if SYSTEM.monotonic() > deadline:
                names = sorted({prefix.strip(one.topic) or one.topic for one in waiting})
                raise TopicError(f"{', '.join(names)}: made, but not usable after {TIMEOUT:g} s")
            pause.wait(_POLL_SECONDS)


def _with_leaders(admin: AdminClient, settings: Settings) -> set[TopicPartition]:
    prefix = Names(settings.kafka.namespace)
    return {
        TopicPartition(prefix.topic(name), number)
        for name, topic in _topics(admin, settings).items()
        for number, partition in topic.partitions.items()
        if partition.leader >= 0
    }
