"""The difference between declared and existing topics, as a plan that is shown before it is made. No I/O."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TypeAlias

from offsetzero.topics.catalogue import Kind, Topic

_WAITING_KINDS = frozenset({Kind.RETRY, Kind.REDRIVE})
_GROUP_KINDS = frozenset({Kind.RETRY, Kind.REDRIVE, Kind.DLQ})


@dataclass(frozen=True, slots=True)
class TopicState:
    """A topic as the cluster has it. `config` holds the values in force, whoever set them."""

    name: str
    partitions: int
    replication: int
    config: Mapping[str, str]


@dataclass(frozen=True, slots=True)
class CreateTopic:
    """Make a topic that does not exist."""

    topic: Topic

    @property
    def name(self) -> str:
        return self.topic.name

    def __str__(self) -> str:
        return f"create {self.name} with {self.topic.partitions} partitions, {self.topic.replication} replicas"


@dataclass(frozen=True, slots=True)
class ConfigChange:
    """One configuration value. `old` is None when the cluster does not know the name."""

    key: str
    old: str | None
    new: str


@dataclass(frozen=True, slots=True)
class AlterConfig:
    """Set configuration values of a topic; what is not named keeps its value."""

    name: str
    changes: tuple[ConfigChange, ...]

    def __str__(self) -> str:
        shown = ", ".join(f"{one.key}: {one.old} -> {one.new}" for one in self.changes)
        return f"configure {self.name}: {shown}"


@dataclass(frozen=True, slots=True)
class AddPartitions:
    """Raise the partition count of a topic. Keys move: a key's new records may go to another partition."""

    name: str
    old: int
    new: int

    def __str__(self) -> str:
        return f"add partitions to {self.name}: {self.old} -> {self.new} (keys move)"


Action: TypeAlias = CreateTopic | AlterConfig | AddPartitions


@dataclass(frozen=True, slots=True)
class Plan:
    """What is to be done, in order; why it must not be done; and what is worth knowing.

    A plan with refusals is never applied, not even in part.
    """

    actions: tuple[Action, ...] = ()
    refusals: tuple[str, ...] = ()
    notices: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Intent:
    """What the operator allows, and what is known of the cluster's groups.

    `sources` gives the sources of each group, `waiting` the records not done yet in a retry or redrive topic.
    """

    allow_rekey: bool = False
    sources: Mapping[str, Sequence[str]] = field(default_factory=dict)
    waiting: Mapping[str, int] = field(default_factory=dict)


def make_plan(declared: Sequence[Topic], existing: Mapping[str, TopicState], intent: Intent | None = None) -> Plan:
    """Compare declared topics (with their counts) with what exists.

    Topics that exist and are not declared are left alone; nothing is ever deleted.

    Args:
        declared: resolved topics.
        existing: what the cluster has, by our names.
        intent: by default nothing is allowed and nothing known.
    """
    intent = intent or Intent()
    by_name = {topic.name: topic for topic in declared}
    creates = [CreateTopic(topic) for topic in declared if topic.name not in existing]
    known = [(topic, existing[topic.name]) for topic in declared if topic.name in existing]
    alters = [action for topic, state in known if (action := _alter(topic, state)) is not None]
    grown = [
        AddPartitions(topic.name, state.partitions, topic.partitions)
        for topic, state in known
        if topic.partitions > state.partitions
    ]
    # Retry topics and changelogs first: a record of a new source partition may need theirs at once.
    grown.sort(key=lambda action: by_name[action.name].kind not in _GROUP_KINDS | {Kind.CHANGELOG})
    refusals = [
        *_refused_declarations(declared),
        *_refused_groups(by_name, intent),
        *_refused_shrinking(known),
        *_refused_growth(grown, by_name, intent),
    ]
    notices = [
        f"{topic.name}: has {state.replication} replicas, declared are {topic.replication}; "
        "kafka-reassign-partitions.sh changes that"
        for topic, state in known
        if state.replication != topic.replication
    ]
    return Plan((*creates, *alters, *grown), tuple(refusals), tuple(notices))


def _alter(topic: Topic, state: TopicState) -> AlterConfig | None:
    changes = tuple(
        ConfigChange(key, state.config.get(key), value)
        for key, value in topic.config.items()
        if state.config.get(key) != value
    )
    return AlterConfig(topic.name, changes) if changes else None


def _refused_declarations(declared: Sequence[Topic]) -> Iterator[str]:
    """A record that waits or is dead may only go away by somebody's decision."""
    for topic in declared:
        compacted = "compact" in topic.config.get("cleanup.policy", "delete")
        if topic.kind in _GROUP_KINDS and compacted:
            yield f"{topic.name}: a {topic.kind} topic must not be compacted: it would lose all but the last of a key"
        if topic.kind in _WAITING_KINDS:
            for key in ("retention.ms", "retention.bytes"):
                if topic.config.get(key, "-1" if key == "retention.bytes" else "604800000") != "-1":
                    yield f"{topic.name}: a {topic.kind} topic needs {key}=-1: waiting records must not expire"


def _refused_groups(by_name: Mapping[str, Topic], intent: Intent) -> Iterator[str]:
    """Partition p of a group's sources and retry topics is worked as one, so their counts must be equal."""
    for group, sources in intent.sources.items():
        counts = {name: by_name[name].partitions for name in sources if name in by_name}
        if len(set(counts.values())) > 1:
            yield f"group {group}: its sources need one partition count, not {_shown(counts)}"
            continue
        for topic in by_name.values():
            if topic.group == group and topic.kind in _GROUP_KINDS and counts:
                wanted = next(iter(counts.values()))
                if topic.partitions != wanted:
                    yield (
                        f"{topic.name}: has {topic.partitions} partitions, but the sources of {group} have {wanted}: "
                        "a record is retried in its origin's partition number"
                    )


def _refused_shrinking(known: Sequence[tuple[Topic, TopicState]]) -> Iterator[str]:
    for topic, state in known:
        if topic.partitions < state.partitions:
            yield (
                f"{topic.name}: has {state.partitions} partitions, declared are {topic.partitions}: Kafka cannot "
                f"take partitions away; declare {state.partitions} (OFFSETZERO_KAFKA__PARTITIONS)"
            )


def _refused_growth(grown: Sequence[AddPartitions], by_name: Mapping[str, Topic], intent: Intent) -> Iterator[str]:
    for action in grown:
        if not intent.allow_rekey:
            yield (
                f"{action.name}: adding partitions ({action.old} -> {action.new}) moves keys to other partitions, "
                "and their order is lost over that moment; --allow-rekey does it"
            )
            continue
        for name in _retries_behind(by_name[action.name], by_name, intent):
            count = intent.waiting.get(name, 0)
            if count:
                yield (
                    f"{action.name}: {count} records wait in {name}, whose keys would move away from them; "
                    "let the group finish them first"
                )


def _retries_behind(topic: Topic, by_name: Mapping[str, Topic], intent: Intent) -> list[str]:
    """The waiting topics whose records belong to keys of this topic."""
    if topic.kind in _WAITING_KINDS:
        return [topic.name]
    groups = {group for group, sources in intent.sources.items() if topic.name in sources}
    return [one.name for one in by_name.values() if one.group in groups and one.kind in _WAITING_KINDS]


def _shown(counts: Mapping[str, int]) -> str:
    return ", ".join(f"{name}: {count}" for name, count in counts.items())
