"""Kafka transactions of one member: outputs, retries, dead letters and source offsets, all or none (KIP-447)."""

import threading
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from confluent_kafka import KafkaError, TopicPartition

from offsetzero import logs
from offsetzero.clock import Clock
from offsetzero.consumers.reading.transaction_commits import Left, TransactionCommits
from offsetzero.consumers.record import OwnedPartition, Record
from offsetzero.consumers.working.appends import Append, Refusals, is_too_large
from offsetzero.consumers.working.effects import is_unsound
from offsetzero.consumers.working.run import Ending
from offsetzero.errors import GroupStopped, PublishError, TopicError
from offsetzero.producers.delivery import Delivery
from offsetzero.producers.transactions import TransactionalProducer, TransactionError, Unsettled
from offsetzero.retry.classify import classify
from offsetzero.store.starts import Place
from offsetzero.topics.names import Names
from offsetzero.topics.offsets import Committed, mark

TRANSACTION_SECONDS = 15.0
"""From the first append to the commit, no handler in between. What a killed member leaves open is aborted then: until
that moment readers of its outputs, and the next owner of its partitions, wait."""
CALL_SECONDS = 5.0  # for one call of the client; what was not answered is asked again
PATIENCE_SECONDS = 30.0  # with a producer that has no answer
PAUSE_SECONDS = 0.2  # before an aborted transaction is tried again
MAX_LOST = 5  # producers in a row that end without one transaction
# The record's own fault, or its topic's: others may go on without it.
_REFUSALS = frozenset(
    str(KafkaError(code).name())
    for code in (
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
)

log = logs.get(__name__)


@dataclass(slots=True, eq=False)
class Handled:
    """A record whose handling has ended, and what is appended because of it."""

    record: Record
    ending: Ending
    appends: list[Append] = field(default_factory=list)


class Aborted(Exception):
    """A transaction was aborted; `refused` is what it failed of, and `why`; None when it is nobody's fault."""

    def __init__(self, error: BaseException, refused: Handled | None = None, why: PublishError | None = None) -> None:
        self.refused = refused
        self.why = why
        super().__init__(str(error))


class Transactions:
    """Commits in transactions, one at a time; belongs to one thread.

    Args:
        group: for log lines and metrics.
        make: makes a producer, always with the same transactional id: a new one ends what the one before left open.
        commits: knows the member, and where its partitions stand.
        committed: asks for committed offsets, once no transaction on them is open.
        names: of topics on the cluster.
        refusals: told what the broker does not take.
        clock: for pauses.
    """

    def __init__(
        self,
        group: str,
        make: Callable[[], TransactionalProducer],
        commits: TransactionCommits,
        committed: Callable[[Sequence[Place]], Mapping[Place, Committed]],
        names: Names,
        refusals: Refusals,
        clock: Clock,
    ) -> None:
        self._group = group
        self._make = make
        self._commits = commits
        self._committed = committed
        self._names = names
        self._refusals = refusals
        self._clock = clock
        self._producer: TransactionalProducer | None = None
        self._reached: dict[tuple[str, int], int] = {}  # by topic id and partition
        self._lost = 0
        self._sleep = threading.Condition()

    def commit(self, handled: Sequence[Handled]) -> list[tuple[Record, Ending]]:
        """Append what these records have led to and commit the offsets behind them, as often as it takes.

        Args:
            handled: of each partition the first records that are not done, in order.

        Returns:
            How each has ended: what was refused, and what follows it in its partition, is to run again; what was
            revoked meanwhile is left.

        Raises:
            GroupStopped: no producer gets through.
        """
        endings = {one.record: one.ending for one in handled}
        rest = _without(handled, {one for one in handled if one.ending is not Ending.DONE}, endings)
        rest = [one for one in rest if not self._is_done(one.record)]
        try:
            while True:
                # In this order: what is owned after it was asked is fenced by the answer when it is owned no more.
                metadata = self._commits.metadata()
                endings.update((one.record, Ending.LEFT) for one in rest if one.record.owned.gone)
                rest = [one for one in rest if not one.record.owned.gone]
                if not (offsets := self._offsets(rest)):
                    break
                try:
                    if metadata is None:
                        raise Aborted(RuntimeError("this member is joining the group again"))
                    self._once(rest, offsets, metadata)
                    break
                except Aborted as error:
                    rest = self._after(error, rest, endings)
        except Left:
            endings.update((one.record, Ending.LEFT) for one in rest)
        return list(endings.items())

    @property
    def is_behind(self) -> bool:
        """Whether a partition stands further than was committed."""
        return bool(self._offsets(()))

    def close(self) -> None:
        """Let go of the producer; the broker aborts what is open after its time-out."""
        if self._producer is not None:
            self._producer.close(1.0)
            self._producer = None

    def _after(self, error: Aborted, rest: list[Handled], endings: dict[Record, Ending]) -> list[Handled]:
        log.warning("transaction aborted", group=self._group, records=len(rest), error=str(error))
        if error.refused is None:
            self._pause()
            return rest
        record = error.refused.record
        self._refusals.add(record, ", ".join(sorted({append.topic for append in error.refused.appends})), str(error))
        endings[record] = Ending.AGAIN
        if error.why is not None and record.failed is None and is_unsound(error.why):
            record.failed = classify(error.why)  # the handler's own outputs; next, it is settled
        elif error.why is not None and record.failed is not None and is_too_large(error.why):
            record.outgrown += 1  # what follows from its failure; next, it goes to another place
        return _without(rest, {error.refused}, endings)

    def _is_done(self, record: Record) -> bool:
        """Whether it was committed for an earlier stay of its partition, which ended while that went on."""
        return record.offset < self._reached_before(record.owned)

    def _reached_before(self, stay: OwnedPartition) -> int:
        """What was committed for an earlier stay of a partition that was with this member all the time."""
        return self._reached.get((stay.topic_id, stay.partition), 0) if stay.resume_at is not None else 0

    def _offsets(self, handled: Iterable[Handled]) -> dict[OwnedPartition, int]:
        offsets = {
            stay: offset
            for stay, offset in self._commits.settled.items()
            if stay.active
            and (stay.committed is None or offset > stay.committed)
            and offset >= self._reached_before(stay)
        }
        for one in handled:
            offsets[one.record.owned] = one.record.offset + 1
        return offsets

    def _once(self, handled: Sequence[Handled], offsets: Mapping[OwnedPartition, int], metadata: Any) -> None:
        """One transaction.

        Raises:
            Aborted: nothing of it has happened.
        """
        producer = self._open()
        places = [
            TopicPartition(self._names.topic(stay.topic), stay.partition, offset, mark(stay.topic_id))
            for stay, offset in offsets.items()
        ]
        sent: list[tuple[Handled, Delivery]] = []
        committing = False
        try:
            producer.begin()
            sent = [(one, self._append(producer, append)) for one in handled for append in one.appends]
            self._settle(lambda: producer.send_offsets(places, metadata, CALL_SECONDS))
            committing = True
            self._settle(lambda: producer.commit(CALL_SECONDS))
        except PublishError as error:
            refused, why = next(((one, why) for one, delivery in sent if (why := _refusal(delivery))), (None, None))
            if self._abort(producer) or not committing or not self._was_committed(offsets):
                raise Aborted(error, refused, why) from error
        self._lost = 0
        for one in handled:
            self._refusals.remove(one.record)
        for stay, offset in offsets.items():
            stay.committed = stay.acknowledged = self._reached[stay.topic_id, stay.partition] = offset

    def _append(self, producer: TransactionalProducer, append: Append) -> Delivery:
        return producer.produce(
            self._names.topic(append.topic),
            key=append.key,
            value=append.value,
            headers=append.headers,
            partition=append.partition,
            timestamp_ms=append.timestamp_ms,
        )

    def _open(self) -> TransactionalProducer:
        """The producer; a new one when the last was lost, such as after a time-out of its transaction."""
        while self._producer is None:
            self._commits.metadata()  # raises Left
            try:
                self._producer = self._make()
            except Unsettled as error:
                log.warning("transactions not ready", group=self._group, error=str(error))
                self._pause()
            except TransactionError as error:
                raise GroupStopped(f"group {self._group}: no transactions: {error}") from error
        return self._producer

    def _abort(self, producer: TransactionalProducer) -> bool:
        """Whether the transaction is aborted for sure; otherwise it ends when the next producer is made."""
        try:
            self._settle(lambda: producer.abort(CALL_SECONDS))
            return True
        except TransactionError as error:
            log.warning("transactional producer given up", group=self._group, error=str(error))
            self.close()
            self._lost += 1
            if self._lost > MAX_LOST:
                raise GroupStopped(f"group {self._group}: no transaction succeeds: {error}") from error
            return False

    def _was_committed(self, offsets: Mapping[OwnedPartition, int]) -> bool:
        """What became of a commit without an answer: its offsets tell, once a new producer has ended it."""
        self._open()
        while True:
            try:
                found = self._committed([stay.place for stay in offsets])
                return all(_holds(found.get(stay.place), stay, offset) for stay, offset in offsets.items())
            except TopicError as error:
                log.warning("what became of a transaction is not known yet", group=self._group, error=str(error))
                self._pause()
                self._commits.metadata()  # raises Left

    def _settle(self, call: Callable[[], None]) -> None:
        """Repeat a call until it has an answer; only so long, for a new producer looks for the brokers anew."""
        deadline = self._clock.monotonic() + PATIENCE_SECONDS
        while True:
            try:
                return call()
            except Unsettled as error:
                log.warning("transaction not settled", group=self._group, error=str(error))
                self._commits.metadata()  # raises Left
                if self._clock.monotonic() > deadline:
                    raise

    def _pause(self) -> None:
        with self._sleep:
            self._clock.wait(self._sleep, lambda: False, PAUSE_SECONDS)


def _without(handled: Sequence[Handled], failed: set[Handled], endings: dict[Record, Ending]) -> list[Handled]:
    """What can be committed when these cannot: of their partitions, what comes before them."""
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


def _holds(found: Committed | None, stay: OwnedPartition, offset: int) -> bool:
    """Whether what is committed shows a commit of this offset. The first one of a replay may have gone back."""
    if found is None:
        return False
    is_first = stay.target is not None and stay.acknowledged is None
    return found.offset == offset if is_first else found.offset >= offset


def _refusal(delivery: Delivery) -> PublishError | None:
    if not delivery.done():
        return None
    try:
        delivery.result(0)
    except PublishError as error:
        return error if error.code in _REFUSALS else None
    return None
