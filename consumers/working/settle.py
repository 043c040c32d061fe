"""After a failure: the decision is carried out before the record counts as done (design section 7)."""

import random
from dataclasses import replace

import psycopg
from psycopg_pool import PoolTimeout

from offsetzero import logs, metrics
from offsetzero.clock import SYSTEM, Clock
from offsetzero.consumers.group import ConsumerGroup
from offsetzero.consumers.record import Record
from offsetzero.consumers.working import steps
from offsetzero.consumers.working.atwork import TIMED_OUT
from offsetzero.consumers.working.calls import Call
from offsetzero.consumers.working.run import Ending
from offsetzero.consumers.working.transaction import NotNow
from offsetzero.errors import PublishError
from offsetzero.producers.log import LogProducer
from offsetzero.retry import headers as retry_headers
from offsetzero.retry.failures import Failure, FailureClass
from offsetzero.retry.policy import DeadLetter, Retry, RetryPolicy
from offsetzero.store import processed
from offsetzero.store.availability import is_away
from offsetzero.store.database import Pool
from offsetzero.store.processed import Outcome
from offsetzero.store.script import Script, run
from offsetzero.topics.names import Names

PROBE_SECONDS = 5.0  # for our own database to show that it is not what took so long

TELL_SECONDS = 1.0
log = logs.get(__name__)


class Settler:
    """Carries out what the retry policy decides; blocks its caller, a worker, for one try.

    Args:
        group: whose failures these are.
        policy: the group's tiers.
        producer: appends to the group's retry and dead-letter topics.
        pool: connections to the database; None for a group without one, whose outcomes are its appends.
        names: topic names on the cluster.
        source: `ce_source` of the run's events.
        clock: wall time for due times.
        dice: for jitter.
    """

    def __init__(
        self,
        group: ConsumerGroup,
        policy: RetryPolicy,
        producer: LogProducer,
        pool: Pool | None,
        names: Names,
        source: str,
        clock: Clock,
        dice: random.Random,
    ) -> None:
        self._group = group
        self._policy = policy
        self._producer = producer
        self._pool = pool
        self._names = names
        self._source = source
        self._clock = clock
        self._dice = dice

    def end(self, call: Call, failure: Failure) -> Ending:
        """Settle, and say how the work on the record ended; raises nothing."""
        try:
            if failure.reason == TIMED_OUT and not call.record.appended:
                self._ask_database(call.record)
            return Ending.DONE if self.settle(call, failure) else Ending.LEFT
        except NotNow as error:
            return not_now(call.record, error)
        except Exception:  # an error of ours: it stops its partition, with a line a second, rather than the group
            log.exception("settling failed", record=str(call.record))
            return Ending.AGAIN

    def _ask_database(self, record: Record) -> None:
        """Where the database itself has held the handler up, it is called again, with the same attempt."""
        if self._pool is None:
            return
        try:
            with self._pool.connection(PROBE_SECONDS) as connection:
                connection.execute("SELECT 1")
        except (psycopg.Error, PoolTimeout) as error:
            if is_away(error):
                record.failed = None
                raise NotNow from error

    def settle(self, call: Call, failure: Failure) -> bool:
        """Retry, dead-letter or fail a record. May be called again for it after `NotNow`: what is done stays done.

        Returns:
            True when the outcome is safe; False when another member owns the record by now, and will settle it.

        Raises:
            NotNow: the broker or the database refuses; nothing may be committed past the record meanwhile.
        """
        decision = self._policy.decide(failure, call.hop.attempt, self._clock.now_ms(), self._dice)
        if call.record.failed is None:
            call.record.failed = failure
            self._tell(call, failure, decision)
            retry_headers.let_go(failure)  # it may stay for long, while the broker or the database is away
        match decision:
            case Retry():
                return self._retry(call, failure, decision)
            case DeadLetter():
                return self._append(call, failure, self._dead_letter_topic, call.hop.attempt, 0) and self._finish(
                    call, failure, Outcome.DEAD_LETTERED
                )
            case _:
                return self._finish(call, failure, Outcome.FAILED)

    @property
    def _dead_letter_topic(self) -> str:
        return f"{self._group.name}.dlq"

    def _retry(self, call: Call, failure: Failure, decision: Retry) -> bool:
        # The step is shown as waiting first: once the copy is in the log, its next attempt may start at any time.
        if self._group.step:
            self._write(call, steps.wait(call, self._group.name, failure, call.hop.attempt, decision.due_ms))
        topic = f"{self._group.name}.{decision.tier.name}"
        if not self._append(call, failure, topic, decision.attempt, decision.due_ms):
            return False
        kind = failure.failure_class.value
        metrics.RETRIES.labels(self._group.name, decision.tier.name, kind).inc()
        return True

    def _finish(self, call: Call, failure: Failure, outcome: Outcome) -> bool:
        def script() -> Script[None]:
            if (yield from processed.claim(call.identity, outcome)) and self._group.step:
                yield from steps.fail(call, self._group.name, failure, self._source)

        self._write(call, script())
        if outcome is Outcome.DEAD_LETTERED:
            metrics.DEAD_LETTERS.labels(self._group.name, failure.failure_class.value).inc()
        metrics.EVENTS_HANDLED.labels(self._group.name, call.label, outcome.value).inc()
        return True

    def _append(self, call: Call, failure: Failure, topic: str, attempt: int, due_ms: int) -> bool:
        record = call.record
        if record.appended:
            return True
        if not record.owned.active:
            return False
        hop = replace(call.hop, attempt=attempt, hop=call.hop.hop + 1, due_ms=due_ms)
        headers = retry_headers.write(record.headers, hop, failure, self._group.name)
        try:
            self._put(record, topic, headers, hop.origin.partition)
        except PublishError as error:
            metrics.APPENDS_FAILED.labels(self._group.name, topic).inc()
            log.error("append refused", topic=topic, record=str(record), error=str(error))
            raise NotNow from error
        return True

    def _put(self, record: Record, topic: str, headers: retry_headers.Headers, partition: int) -> None:
        self._producer.produce(
            self._names.topic(topic),
            key=record.key,
            value=record.value,
            headers=headers,
            partition=partition,
            # Now, not the record's own time: retention would delete an old one at once (apache/kafka#22849).
            timestamp_ms=self._clock.now_ms(),
        ).result()
        record.appended = True

    def _write(self, call: Call, script: Script[None]) -> None:
        """Also when the partition was revoked meanwhile: the outcome of a dead letter in the log belongs to it."""
        if self._pool is None:
            return
        try:
            with self._pool.connection() as connection:
                run(connection, script)
        except (psycopg.Error, PoolTimeout) as error:
            if not is_away(error):
                log.error("outcome refused", record=str(call.record), error=str(error))
            raise NotNow from error

    def _tell(self, call: Call, failure: Failure, decision: object) -> None:
        write = log.error if failure.failure_class is FailureClass.BUG else log.warning
        write(
            "handling failed",
            record=str(call.record),
            event_type=call.meta.type,
            failure=failure.failure_class.value,
            reason=failure.reason,
            detail=failure.internal or failure.detail,
            next=type(decision).__name__.lower(),
            exc_info=failure.__cause__ if failure.failure_class is FailureClass.BUG else None,
        )


_told: dict[str, float] = {}  # when an outage was last logged, by its kind: every record in work meets it again


def not_now(record: Record, error: BaseException) -> Ending:
    """The same attempt, a little later. An outage is logged once a second, with one of its records."""
    cause = error.__cause__ or error
    kind, now = type(cause).__name__, SYSTEM.monotonic()
    if now - _told.get(kind, -TELL_SECONDS) >= TELL_SECONDS:
        _told[kind] = now
        log.warning("not now, tried again", record=str(record), kind=kind, error=str(cause))
    return Ending.AGAIN
