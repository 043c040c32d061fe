"""One Kafka transaction after the other, each with a known end: outputs, retries, dead letters and source offsets, all
or none (KIP-447)."""

import threading
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from confluent_kafka import TopicPartition

from offsetzero import logs
from offsetzero.clock import Clock
from offsetzero.consumers.reading.transaction_commits import TransactionCommits
from offsetzero.consumers.record import OwnedPartition
from offsetzero.consumers.working.appends import Append, Refusals
from offsetzero.consumers.working.blame import Aborted, Blame, Handled, blame, is_not_allowed
from offsetzero.errors import GroupStopped, PublishError, TopicError
from offsetzero.producers.delivery import Delivery
from offsetzero.producers.transactions import TransactionalProducer, TransactionError, Unsettled
from offsetzero.store.starts import Place
from offsetzero.topics.names import Names
from offsetzero.topics.offsets import Committed, mark

TRANSACTION_SECONDS = 15.0
"""From the first append to the commit, no handler in between. What a killed member leaves open is aborted then: until
that moment readers of its outputs, and the next owner of its partitions, wait."""
CALL_SECONDS = 5.0  # for one call of the client; what was not answered is asked again
LOOK_SECONDS = 1.0  # for the records to be taken, before somebody looks why they are not
TOLD_SECONDS = 0.1  # for the client to say of each record what it has said of the transaction
PATIENCE_SECONDS = 30.0  # with a producer that has no answer
PAUSE_SECONDS = 0.2  # before an aborted transaction is tried again
MAX_LOST = 5  # producers in a row that end without one transaction

log = logs.get(__name__)


class KafkaTransaction:
    """Runs one transaction at a time; belongs to one thread.

    Args:
        group: for log lines.
        make: makes a producer with the transactional id of a number: a new one with the same id ends what the one
            before left open.
        commits: knows the member.
        committed: asks for committed offsets, once no transaction on them is open.
        names: of topics on the cluster.
        refusals: told that nothing goes on.
        clock: for pauses.
    """

    def __init__(
        self,
        group: str,
        make: Callable[[int], TransactionalProducer],
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
        self._number = 0
        self._lost = 0
        self._sleep = threading.Condition()

    def run(
        self,
        handled: Sequence[Handled],
        offsets: Mapping[OwnedPartition, int],
        metadata: Any,
        short: Callable[[], Mapping[Handled, Blame]],
    ) -> None:
        """Append what these have led to, and commit the offsets.

        Args:
            handled: with the records to append.
            offsets: behind them.
            metadata: how the group knows this member.
            short: finds those whose topics lack replicas; asked when records are not taken soon, for the client tries
                until their time is over, in which the one worker does nothing else.

        Raises:
            Aborted: nothing of it has happened.
            GroupStopped: no producer gets through.
            Left: the consumer is about to be closed.
        """
        producer = self._open()
        places = [
            TopicPartition(self._names.topic(stay.topic), stay.partition, offset, mark(stay.topic_id))
            for stay, offset in offsets.items()
        ]
        sent: list[tuple[Handled, Append, Delivery]] = []
        committing = False
        try:
            producer.begin()
            sent = [(one, append, self._append(producer, append)) for one in handled for append in one.appends]
            self._settle(lambda: producer.send_offsets(places, metadata, CALL_SECONDS))
            self._await_records(producer, short)
            committing = True
            self._settle(lambda: producer.commit(CALL_SECONDS))
        except PublishError as error:
            # Before the abort, which gives up what is on its way. After a record has failed no commit is sent.
            producer.flush(TOLD_SECONDS)
            blamed = blame(sent, others_answer=committing)
            aborted = self._abort(producer, waits=not blamed)
            if aborted or blamed or not committing or not self._was_committed(offsets):
                raise Aborted(error, blamed, of_topic=aborted and bool(sent) and is_not_allowed(error)) from error
        self._lost = 0

    def pause(self) -> None:
        """Before it is tried again."""
        with self._sleep:
            self._clock.wait(self._sleep, lambda: False, PAUSE_SECONDS)

    def close(self) -> None:
        """Let go of the producer; the broker aborts what is open after its time-out."""
        if self._producer is not None:
            self._producer.close(1.0)
            self._producer = None

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
                self._producer = self._make(self._number)
            except Unsettled as error:
                self._held_up("transactions not ready", error)
                self.pause()
            except TransactionError as error:
                raise GroupStopped(f"group {self._group}: no transactions: {error}") from error
        return self._producer

    def _abort(self, producer: TransactionalProducer, *, waits: bool) -> bool:
        """Whether the transaction is aborted for sure; otherwise it ends when the next producer is made (or see
        `_leave`)."""
        try:
            self._settle(lambda: producer.abort(CALL_SECONDS), PATIENCE_SECONDS if waits else 0.0)
            return True
        except TransactionError as error:
            log.warning("transactional producer given up", group=self._group, error=str(error))
            self.close()
            if not waits:
                self._number += 1
                return False
            self._lost += 1
            if self._lost > MAX_LOST:
                raise GroupStopped(f"group {self._group}: no transaction succeeds: {error}") from error
            return False

    def _await_records(self, producer: TransactionalProducer, short: Callable[[], Mapping[Handled, Blame]]) -> None:
        """Wait until the records have answers, looking at the replicas of those that have none.

        `commit` would wait, too, but may not be followed by an abort before it has an answer itself.
        """
        deadline = self._clock.monotonic() + TRANSACTION_SECONDS
        while producer.flush(LOOK_SECONDS) and self._clock.monotonic() < deadline:
            self._refusals.hold_up("records of a transaction are not taken yet")
            self._commits.metadata()  # raises Left
            if blamed := short():
                self._leave(producer)
                raise Aborted("too few replicas are in sync, or none leads", blamed)

    def _leave(self, producer: TransactionalProducer) -> None:
        """Have a transaction aborted that cannot end, before its commit was asked for.

        A topic with too few replicas takes no marker of its end, either, and until it does the coordinator begins no
        other transaction with the same id. So this one is left to it, and another id is taken; the other topics have
        their markers at once.
        """
        try:
            producer.abort(LOOK_SECONDS)
        except TransactionError as error:
            log.info("transaction left to its coordinator", group=self._group, error=str(error))
        self.close()
        self._number += 1

    def _was_committed(self, offsets: Mapping[OwnedPartition, int]) -> bool:
        """What became of a commit without an answer: its offsets tell, once a new producer has ended it."""
        self._open()
        while True:
            try:
                found = self._committed([stay.place for stay in offsets])
                return all(_holds(found.get(stay.place), stay, offset) for stay, offset in offsets.items())
            except TopicError as error:
                self._held_up("what became of a transaction is not known yet", error)
                self.pause()
                self._commits.metadata()  # raises Left

    def _settle(self, call: Callable[[], None], patience: float = PATIENCE_SECONDS) -> None:
        """Repeat a call until it has an answer; only so long, for a new producer looks for the brokers anew."""
        deadline = self._clock.monotonic() + patience
        while True:
            try:
                return call()
            except Unsettled as error:
                self._held_up("transaction not settled", error)
                self._commits.metadata()  # raises Left
                if self._clock.monotonic() > deadline:
                    raise

    def _held_up(self, what: str, error: Exception) -> None:
        log.warning(what, group=self._group, error=str(error))
        self._refusals.hold_up(f"{what}: {error}")


def _holds(found: Committed | None, stay: OwnedPartition, offset: int) -> bool:
    """Whether what is committed shows a commit of this offset. The first one of a replay may have gone back."""
    if found is None:
        return False
    is_first = stay.target is not None and stay.acknowledged is None
    return found.offset == offset if is_first else found.offset >= offset
