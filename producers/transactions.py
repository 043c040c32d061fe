"""Transactions: records and consumed positions become visible together, or not at all (KIP-98, KIP-447)."""

import logging
from collections.abc import Callable
from typing import Any

from confluent_kafka import KafkaError, KafkaException, TopicPartition

from offsetzero.clock import SYSTEM
from offsetzero.errors import PublishError
from offsetzero.producers.delivery import Delivery
from offsetzero.producers.log import LogProducer
from offsetzero.schemas.cloudevents import Headers
from offsetzero.settings import Settings
from offsetzero.topics.names import Names

_log = logging.getLogger(__name__)

TRANSACTION_SECONDS = 60.0
_DELIVERY = 2 / 3  # of the transaction's time
_REPEAT_SECONDS = 0.05
# Marked as retriable by the client, but another call has to end first.
_OTHER_CALL = frozenset({KafkaError._CONFLICT, KafkaError._PREV_IN_PROGRESS})
# Said of a record by a client that knows more about its transaction, and tells it in `commit`.
_TOLD_BY_COMMIT = frozenset({KafkaError(code).name() for code in (KafkaError._STATE, KafkaError._FATAL)})


class TransactionError(PublishError):
    """A step of a transaction failed; its class says what to do next. This one itself: the program's mistake, such as
    `commit` without `begin`."""


class AbortRequired(TransactionError):
    """Nothing of this transaction will be visible: call `abort`, go back to the committed positions, do it again.

    A record failed, or the partitions belong to another member by now (the group refuses the positions). After a
    record that the broker refused the next transaction may need an abort too, once: the client has to
    make good the record's sequence number, and does so by that (seen with librdkafka 2.16).
    """


class Unsettled(TransactionError):
    """Not known yet: the same call may be repeated, and no other is possible meanwhile.

    Who does not want to wait closes the producer and makes a new one with the same id, which first lets the
    coordinator end this transaction; then the group's committed offsets say how it ended.
    """


class ProducerLost(TransactionError):
    """This producer can never send again; its transaction is not visible, unless `commit` was under way.

    Another one with its id has begun (this one is a zombie), its transaction took longer than the time-out, or
    it is not allowed to. The broker does not say which of the first two. Close it; a member that still owns its
    partitions makes a new one with the same id, and begins again from the committed offsets.
    """


class TransactionalProducer(LogProducer):
    """A LogProducer whose records belong to transactions, together with what a group has consumed.

        producer.begin()
        try:
            producer.produce(…)
            producer.send_offsets(positions, consumer.consumer_group_metadata())
            producer.commit()
        except AbortRequired:
            producer.abort()  # and seek to the committed positions

    Deliveries settle as usual, but mean nothing before `commit` has returned: readers that are `read_committed` see
    the records then. They need not be waited for: `commit` does, and refuses when one has failed. While a transaction
    is open, such readers wait at its first record. One thread at a time calls the methods of a transaction; any
    thread may produce between `begin` and `commit`. A callback of a delivery must not call them.

    Args:
        settings: the cluster.
        transactional_id: without namespace. A new producer with the same id ends the transaction of the one before,
            and makes that one useless; two members must not share one.
        transaction_timeout: seconds from the first record or position of a transaction after which the broker aborts
            it. A record has two thirds of that to be delivered: an abort must not come too late.
        linger: seconds that a record may wait for others to share a request with.

    Raises:
        Unsettled: the coordinator did not answer within `transaction_timeout`.
        ProducerLost: the broker has no transactions, or not for this client.
    """

    def __init__(
        self,
        settings: Settings,
        transactional_id: str,
        *,
        transaction_timeout: float = TRANSACTION_SECONDS,
        linger: float = 0.005,
    ) -> None:
        self._id = Names(settings.kafka.namespace).transactional_id(transactional_id)
        self._timeout = transaction_timeout
        self._open = False
        self._refused: PublishError | None = None
        super().__init__(
            settings,
            delivery_timeout=transaction_timeout * _DELIVERY,
            linger=linger,
            more={
                "transactional.id": self._id,
                "transaction.timeout.ms": int(transaction_timeout * 1000),
                # To bootstrap again makes new objects of brokers that are back; the client goes on to wait for the old
                # one of the group's coordinator, and `send_offsets` never returns (seen with librdkafka 2.16).
                "metadata.recovery.strategy": "none",
            },
        )
        try:
            self._step("init", self._producer.init_transactions, transaction_timeout)
        except BaseException:
            super().close(0)
            raise

    def produce(
        self,
        topic: str,
        *,
        key: bytes | str | None,
        value: bytes | None,
        headers: Headers | None = None,
        partition: int | None = None,
        timestamp_ms: int | None = None,
    ) -> Delivery:
        """As `LogProducer.produce`. A record that is refused at once fails the transaction, too."""
        delivery = super().produce(
            topic, key=key, value=value, headers=headers, partition=partition, timestamp_ms=timestamp_ms
        )
        if delivery.done():  # the client has not taken it, and so does not count it among those that failed
            try:
                delivery.result(0)
            except PublishError as error:
                self._refused = self._refused or error
        return delivery

    def begin(self) -> None:
        """Begin a transaction. The broker hears of it with the first record or position.

        Raises:
            TransactionError: one is open.
            ProducerLost: this producer can never send again.
        """
        self._step("begin", lambda _: self._producer.begin_transaction(), 0)
        self._open, self._refused = True, None

    def send_offsets(self, positions: list[TopicPartition], group_metadata: Any, timeout: float = 30.0) -> None:
        """Commit consumed positions with the transaction.

        Args:
            positions: for each partition the offset of the next record to consume.
            group_metadata: `consumer.consumer_group_metadata()`, asked for now: it says in which generation the
                partitions are owned, and the group refuses an old one.
            timeout: seconds.

        Raises:
            AbortRequired: the partitions may belong to another member by now, or a record has failed.
            Unsettled: no answer in time; repeat it with the same arguments.
            ProducerLost: this producer can never send again.
        """

        def send(left: float) -> None:
            self._producer.send_offsets_to_transaction(positions, group_metadata, left)

        self._step("send offsets", send, timeout)

    def commit(self, timeout: float = 30.0) -> None:
        """Wait for all records, then commit: all of them and all positions are visible when this returns.

        Args:
            timeout: seconds.

        Raises:
            AbortRequired: a record has failed, or the coordinator refuses. Nothing will be visible.
            Unsettled: not known in time whether it is committed; call `commit` again.
            ProducerLost: this producer can never send again.
        """
        if self._refused is not None and self._refused.code not in _TOLD_BY_COMMIT:
            raise AbortRequired(
                f"transaction {self._id}: a record was refused before it was sent: {self._refused}",
                code=self._refused.code,
            )
        self._step("commit", self._producer.commit_transaction, timeout)
        self._open = False

    def abort(self, timeout: float = 30.0) -> None:
        """Abort: records that are still under way fail, and nothing of the transaction will be visible.

        Args:
            timeout: seconds.

        Raises:
            Unsettled: not known in time; call `abort` again.
            TransactionError: none is open, or its `commit` is unsettled: only that may be called again.
            ProducerLost: this producer can never send again; the coordinator aborts by itself.
        """
        self._step("abort", self._producer.abort_transaction, timeout)
        self._open, self._refused = False, None

    def close(self, timeout: float = 30.0, *, patience: float | None = None) -> int:
        """As `LogProducer.close`, after aborting an open transaction: its readers need not wait for its time-out."""
        if self._open and not self._closed.is_set():
            self._open = False
            try:
                self.abort(min(timeout, patience or timeout))
            except PublishError as error:
                _log.warning("%s; readers may wait for %g s until the broker aborts", error, self._timeout)
        return super().close(timeout, patience=patience)

    def _step(self, name: str, call: Callable[[float], None], timeout: float) -> None:
        """Call the client, again while its error allows it and there is time."""
        deadline = SYSTEM.monotonic() + timeout
        while True:
            try:
                with self._answers.entered(name):
                    call(max(deadline - SYSTEM.monotonic(), 0.0))
                return
            except KafkaException as error:
                found: KafkaError = error.args[0]
                repeat = found.retriable() and found.code() not in _OTHER_CALL
                if repeat and SYSTEM.monotonic() < deadline and not self._closed.wait(_REPEAT_SECONDS):
                    continue
                if found.fatal():
                    self._answers.fatal = self._answers.fatal or found.str()
                raise _typed(found, repeat)(
                    f"transaction {self._id}: {name}: {found.str()}", code=found.name(), retriable=repeat
                ) from None


def _typed(error: KafkaError, repeat: bool) -> type[TransactionError]:
    if error.fatal():
        return ProducerLost
    if error.txn_requires_abort():
        return AbortRequired
    return Unsettled if repeat else TransactionError
