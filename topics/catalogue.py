"""The declared topics: what each is for, its key and event types, and how it must be configured."""

import enum
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from types import MappingProxyType

from offsetzero.errors import TopicError
from offsetzero.settings import Settings

SCHEMAS = "schemas"
CONTROL = "control"
REDRIVE = "redrive"
DLQ = "dlq"
USAGE_CHANGELOG = "usage.changelog"
_HOUR_MS = 60 * 60 * 1000
_DAY_MS = 24 * _HOUR_MS
_NAME = re.compile(r"[a-zA-Z0-9][a-zA-Z0-9._-]*", re.ASCII)
_FOREVER = {"cleanup.policy": "delete", "retention.ms": "-1", "retention.bytes": "-1"}
# A record that fits its source must fit a retry topic and the DLQ with 8 KiB more of headers.
_ROOMY = {"max.message.bytes": str(1_048_588 + 64 * 1024)}


class Kind(enum.StrEnum):
    """What a topic is for; the rules of `plan` follow from it."""

    EVENTS = "events"
    BULK = "bulk"
    SCHEMAS = "schemas"
    RETRY = "retry"
    REDRIVE = "redrive"
    DLQ = "dlq"
    CHANGELOG = "changelog"


@dataclass(frozen=True, slots=True)
class Topic:
    """One declared topic.

    `partitions` and `replication` of 0 stand for what the settings say. `key` says what the record key is.
    `config` holds the topic-level configuration that must be so; what it does not name is left alone.
    """

    name: str
    partitions: int = 0
    replication: int = 0
    config: Mapping[str, str] = field(default_factory=dict)
    key: str = ""
    event_types: tuple[str, ...] = ()
    kind: Kind = Kind.EVENTS
    group: str | None = None

    def __post_init__(self) -> None:
        if len(self.name) > 180 or _NAME.fullmatch(self.name) is None:
            raise TopicError(f"topic {self.name!r}: letters, digits, '.', '_' and '-', at most 180 of them")

    def resolved(self, settings: Settings) -> "Topic":
        """The same topic with the counts that the settings give it."""
        replication = self.replication or settings.kafka.replication_factor
        config = dict(self.config)
        if replication >= 3:  # one replica may be away, and what was acknowledged is on two
            config.setdefault("min.insync.replicas", "2")
        return replace(
            self,
            partitions=self.partitions or settings.kafka.partitions,
            replication=replication,
            config=config,
        )


_DOCUMENT_EVENTS = ("document.uploaded", "document.deleted")
_CONTROL_EVENTS = ("group.replay.requested", "group.replay.answered")
_RUN_EVENTS = ("run.succeeded", "run.failed", "run.cancelled")
TOPICS: tuple[Topic, ...] = (
    Topic("documents", config=_FOREVER, key="document id", event_types=_DOCUMENT_EVENTS),
    Topic(
        "documents.bulk",
        config=_FOREVER,
        key="document id",
        event_types=_DOCUMENT_EVENTS,
        kind=Kind.BULK,
    ),
    Topic("runs", config=_FOREVER, key="run id", event_types=_RUN_EVENTS),
    Topic(
        SCHEMAS,
        partitions=1,
        config={"cleanup.policy": "compact"},
        key="fingerprint of the schema, hex",
        kind=Kind.SCHEMAS,
    ),
    Topic(  # what is said to running members is of use for seconds
        CONTROL,
        partitions=1,
        config={"cleanup.policy": "delete", "retention.ms": str(_HOUR_MS), "segment.ms": str(_HOUR_MS)},
        key="group",
        event_types=_CONTROL_EVENTS,
    ),
    Topic(  # windows are kept for at most a day; closed segments of an hour, so that the rest is soon compacted away
        USAGE_CHANGELOG,
        config={
            "cleanup.policy": "compact,delete",
            "retention.ms": str(25 * _HOUR_MS),
            "segment.ms": str(_HOUR_MS),
        },
        key="partition, tenant, start of the window",
        kind=Kind.CHANGELOG,
        group="usage",
    ),
)
GROUPS: Mapping[str, tuple[str, ...]] = {
    "indexer": ("documents", "documents.bulk"),
    "summariser": ("documents", "documents.bulk"),
    "notifier": ("runs",),
}
"""The sources of each group that comes with offsetzero."""
LISTENERS: Mapping[str, tuple[str, ...]] = {"usage": ("documents", "documents.bulk", "runs")}
"""The sources of those that have no retry topics and no dead letters."""

_declared: dict[str, Topic] = {topic.name: topic for topic in TOPICS}


def declare(topic: Topic) -> Topic:
    """Add a topic for event types of one's own, so that they can be published and consumed.

    Raises:
        TopicError: the name, or one of the event types, already belongs to another topic.
    """
    other = _declared.get(topic.name)
    if other is not None and other != topic:
        raise TopicError(f"topic {topic.name}: declared twice and differently; declare it in one module")
    for event_type in topic.event_types:
        owner = _find(event_type, topic.kind)
        if owner is not None and owner.name != topic.name:
            raise TopicError(f"topic {topic.name}: {event_type} already belongs to {owner.name}")
    _declared[topic.name] = topic
    return topic


@contextmanager
def declared_for(*topics: Topic) -> Iterator[None]:
    """Declare topics for the time of a `with` block: for tests."""
    before = dict(_declared)
    try:
        for topic in topics:
            declare(topic)
        yield
    finally:
        _declared.clear()
        _declared.update(before)


def topic_of(event_type: str, *, bulk: bool = False) -> str:
    """The topic that events of a type are published to.

    Args:
        event_type: such as `document.uploaded`.
        bulk: the lane for backfill.

    Raises:
        TopicError: no topic is declared for it.
    """
    topic = _find(event_type, Kind.BULK if bulk else Kind.EVENTS)
    if topic is None:
        lane = " in bulk" if bulk else ""
        raise TopicError(
            f"no topic is declared for {event_type}{lane}: "
            f"offsetzero.topics.catalogue.declare(Topic(..., event_types=({event_type!r},)))"
        )
    return topic.name


def sources_of(event_types: Iterable[str]) -> list[str]:
    """The topics, in the order of their declaration, that a group must read to see all events of these types.

    Raises:
        TopicError: no topic is declared for one of them.
    """
    wanted = set(event_types)
    for event_type in sorted(wanted):
        topic_of(event_type)
    return [topic.name for topic in _declared.values() if wanted.intersection(topic.event_types)]


def find(name: str) -> Topic | None:
    """The declared topic of a name. Retry topics are not declared one by one; see `group_topics`."""
    return _declared.get(name)


def is_bulk(name: str) -> bool:
    """Whether a topic is declared as a lane for backfill."""
    return name in _declared and _declared[name].kind is Kind.BULK


def group_topics(group: str, partitions: int, tiers: Sequence[str]) -> list[Topic]:
    """The topics that belong to a group: its retry tiers in order, `<group>.redrive` and `<group>.dlq`.

    All have the partition count of the group's sources, so that a key keeps its partition number. They keep
    everything; retry topics are trimmed by DeleteRecords below the committed offset.
    """
    kept = {**_FOREVER, **_ROOMY}
    key = "key of the origin"
    retry = [Topic(f"{group}.{tier}", partitions, config=kept, key=key, kind=Kind.RETRY, group=group) for tier in tiers]
    redrive = Topic(f"{group}.{REDRIVE}", partitions, config=kept, key=key, kind=Kind.REDRIVE, group=group)
    dlq_config = {**kept, "retention.ms": str(90 * _DAY_MS)}
    dlq = Topic(f"{group}.{DLQ}", partitions, config=dlq_config, key=key, kind=Kind.DLQ, group=group)
    return [*retry, redrive, dlq]


def owner_of(name: str, existing: Iterable[str]) -> str | None:
    """The group whose retry, redrive or dead-letter topic this is: one that has dead letters among the existing."""
    groups = [topic.removesuffix(f".{DLQ}") for topic in existing if topic.endswith(f".{DLQ}")]
    return max((group for group in groups if name.startswith(f"{group}.")), key=len, default=None)


def declared(
    settings: Settings,
    groups: Mapping[str, Sequence[str]] = GROUPS,
    tiers: Mapping[str, Sequence[str]] = MappingProxyType({}),
) -> list[Topic]:
    """Every topic that should exist, with its counts: the event topics, and those of each group.

    Args:
        settings: partition and replica counts, and the retry tiers.
        groups: the sources of each group.
        tiers: the retry tiers of groups that have others than those of the settings.

    Raises:
        TopicError: a group reads a topic that is not declared.
    """
    topics = [topic.resolved(settings) for topic in _declared.values()]
    for group, sources in groups.items():
        topics += of_group(settings, group, sources, tiers.get(group))
    return topics


def of_group(settings: Settings, group: str, sources: Sequence[str], tiers: Sequence[str] | None = None) -> list[Topic]:
    """The topics of one group, with their counts; its retry tiers are by default those of the settings.

    Raises:
        TopicError: a source is not declared, or the sources differ in their partition counts.
    """
    counts: dict[str, int] = {}
    for name in sources:
        source = find(name)
        if source is None:
            raise TopicError(f"group {group}: its source {name} is not declared")
        counts[name] = source.resolved(settings).partitions
    if len(set(counts.values())) != 1:
        raise TopicError(f"group {group}: its sources need one partition count, not {counts}")
    names = list(settings.retry_of(group).delays) if tiers is None else tiers
    topics = group_topics(group, next(iter(counts.values())), names)
    return [topic.resolved(settings) for topic in topics]


def _find(event_type: str, kind: Kind) -> Topic | None:
    for topic in _declared.values():
        if topic.kind is kind and event_type in topic.event_types:
            return topic
    return None
