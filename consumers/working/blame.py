"""Which records of a Kafka-transactional group share a transaction, and whose fault is one that is not taken. Pure."""

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import NamedTuple

from confluent_kafka import KafkaError

from offsetzero.consumers.record import OwnedPartition, Record
from offsetzero.consumers.working.appends import Append
from offsetzero.consumers.working.run import Ending
from offsetzero.errors import PublishError
from offsetzero.producers.delivery import Delivery


def _names(*codes: int) -> frozenset[str]:
    return frozenset(str(KafkaError(code).name()) for code in codes)


# The record's own fault, or its topic's: others may go on without it.
_REFUSALS = _names(
    KafkaError._UNKNOWN_TOPIC,
    KafkaError._UNKNOWN_PARTITION,
    KafkaError.UNKNOWN_TOPIC_OR_PART,
    KafkaError.MSG_SIZE_TOO_LARGE,
    KafkaError.RECORD_LIST_TOO_LARGE,
    KafkaError.TOPIC_AUTHORIZATION_FAILED,
    KafkaError.INVALID_RECORD,
    KafkaError.POLICY_VIOLATION,
    KafkaError.INVALID_TIMESTAMP,
)
_NOT_ALLOWED = _names(KafkaError.TOPIC_AUTHORIZATION_FAILED)
# For as long as the client tries: no leader, too few replicas, a full disk. The topic's fault while others answer.
_UNANSWERED = _names(
    KafkaError._MSG_TIMED_OUT,
    KafkaError.NOT_ENOUGH_REPLICAS,
    KafkaError.NOT_ENOUGH_REPLICAS_AFTER_APPEND,
    KafkaError.REQUEST_TIMED_OUT,
)


@dataclass(slots=True, eq=False)
class Handled:
    """A record whose handling has ended, and what is appended because of it."""

    record: Record
    ending: Ending
    appends: list[Append] = field(default_factory=list)

    @property
    def topics(self) -> frozenset[str]:
        """What it is appended to."""
        return frozenset(append.topic for append in self.appends)


class Blame(NamedTuple):
    """What a topic has answered to an append of a record. `why` is None when it is known of the topic alone."""

    topic: str
    error: str
    why: PublishError | None = None


class Aborted(Exception):
    """Nothing of a transaction has happened. `blamed` says which of its records it failed of; nobody when it is empty.
    `of_topic` says that the client may not write to a topic of it, without saying which."""

    def __init__(
        self, error: object, blamed: Mapping[Handled, Blame] = MappingProxyType({}), *, of_topic: bool = False
    ) -> None:
        self.blamed = blamed
        self.of_topic = of_topic and not blamed
        super().__init__(str(error))


class Shares:
    """Cuts what one commit has into shares; each is a transaction.

    Everything goes together at first, but for what is appended to topics that have refused before: that goes last, so
    that the rest does not fail or wait with it. When the client may not write to a topic, the coordinator refuses
    the whole transaction, no record has an answer, and the topic is not named (seen with librdkafka 2.16). Then records
    go by the topics that they are appended to, until it is known which those are.

    Args:
        refused: topics that have not taken appends.
    """

    def __init__(self, refused: Collection[str]) -> None:
        self._refused = refused
        self._searching = False
        self._taken: set[frozenset[str]] = {frozenset()}
        self._tried: frozenset[str] = frozenset()

    def next(self, rest: Sequence[Handled]) -> list[Handled]:
        """What to try now, of each partition the first records of the rest."""
        self._tried = frozenset()
        if not rest or not (self._refused or self._searching):
            return list(rest)
        if sound := self._first(rest):
            return sound
        self._tried = rest[0].topics
        return self._first(rest)

    @property
    def is_doubtful(self) -> bool:
        """Whether the last share is of topics that have refused appends."""
        return any(topic in self._refused for topic in self._tried)

    def took(self) -> None:
        """The last share is committed."""
        self._taken.add(self._tried)

    def not_allowed(self, share: Sequence[Handled]) -> list[Handled]:
        """The last share has a topic that the client may not write to: which records are appended to it, if that is
        known."""
        kinds = {one.topics for one in share if one.topics}
        tried = self._tried or (kinds.pop() if len(kinds) == 1 else None)
        if tried is None:
            self._searching, self._taken = True, {frozenset()}
            return []
        return [one for one in share if one.topics == tried]

    def _first(self, rest: Iterable[Handled]) -> list[Handled]:
        held: set[OwnedPartition] = set()
        first = []
        for one in rest:
            if one.record.owned in held:
                continue
            if self._is_doubtful(one.topics):
                held.add(one.record.owned)
            else:
                first.append(one)
        return first

    def _is_doubtful(self, topics: frozenset[str]) -> bool:
        if topics == self._tried or topics in self._taken:
            return False
        return self._searching or any(topic in self._refused for topic in topics)


def without(handled: Sequence[Handled], failed: Collection[Handled], endings: dict[Record, Ending]) -> list[Handled]:
    """What can be committed when these cannot: of their partitions, what comes before them; what follows runs again."""
    held: set[OwnedPartition] = set()
    kept = []
    for one in handled:
        if one in failed:
            held.add(one.record.owned)
        elif one.record.owned in held:
            endings[one.record] = Ending.AGAIN
        else:
            kept.append(one)
    return kept


def blame(sent: Iterable[tuple[Handled, Append, Delivery]], *, others_answer: bool) -> dict[Handled, Blame]:
    """The records that a transaction failed of.

    Args:
        sent: what it was to append.
        others_answer: whether the coordinators did, so that it is not the whole cluster that is away.
    """
    codes = _REFUSALS | _UNANSWERED if others_answer else _REFUSALS
    found: dict[Handled, Blame] = {}
    for one, append, delivery in sent:
        why = _error(delivery)
        if why is not None and why.code in codes and one not in found:
            found[one] = Blame(append.topic, str(why), why)
    return found


def is_not_allowed(error: PublishError) -> bool:
    """Whether a step of a transaction failed of a topic that the client may not write to."""
    return error.code in _NOT_ALLOWED


def _error(delivery: Delivery) -> PublishError | None:
    if not delivery.done():
        return None
    try:
        delivery.result(0)
    except PublishError as error:
        return error
    return None
