"""After a failure: the decision is carried out before the record counts as done (design section 7)."""

import random
import threading
from collections.abc import Callable
from dataclasses import replace

import psycopg
from psycopg_pool import PoolTimeout

from offsetzero import logs, metrics
from offsetzero.clock import Clock
from offsetzero.consumers import steps
from offsetzero.consumers.calls import Call
from offsetzero.consumers.group import ConsumerGroup
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

_BACKOFF_MAX = 30.0  # seconds between tries while the broker or the database is away

log = logs.get(__name__)


class Settler:
    """Carries out what the retry policy decides; blocks its caller, a worker, until that is safe.

    Args:
        group: whose failures these are.
        policy: the group's tiers.
        producer: appends to the group's retry and dead-letter topics.
        pool: connections to the database.
        names: topic names on the cluster.
        source: `ce_source` of the run's events.
        clock: wall time for due times.
        dice: for jitter.
        stopping: set when the process ends: unfinished work is then left to the next owner.
    """

    def __init__(
        self,
        group: ConsumerGroup,
        policy: RetryPolicy,
        producer: LogProducer,
        pool: Pool,
        names: Names,
        source: str,
        clock: Clock,
        dice: random.Random,
        stopping: threading.Event,
    ) -> None:
        self._group = group
        self._policy = policy
        self._producer = producer
        self._pool = pool
        self._names = names
        self._source = source
        self._clock = clock
        self._dice = dice
        self._stopping = stopping

    def settle(self, call: Call, failure: Failure) -> bool:
        """Retry, dead-letter or fail a record.

        Returns:
            True when the outcome is safe; False when the partition was revoked or the process ends before that:
            the record stays uncommitted and will be read again.
        """
        decision = self._policy.decide(failure, call.hop.attempt, self._clock.now_ms(), self._dice)
        self._tell(call, failure, decision)
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
        if self._group.step and not self._write(
            call, lambda: steps.wait(call, self._group.name, failure, call.hop.attempt, decision.due_ms)
        ):
            return False
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

        if not self._write(call, script):
            return False
        if outcome is Outcome.DEAD_LETTERED:
            metrics.DEAD_LETTERS.labels(self._group.name, failure.failure_class.value).inc()
        metrics.EVENTS_HANDLED.labels(self._group.name, call.label, outcome.value).inc()
        return True

    def _append(self, call: Call, failure: Failure, topic: str, attempt: int, due_ms: int) -> bool:
        hop = replace(call.hop, attempt=attempt, hop=call.hop.hop + 1, due_ms=due_ms)
        record = call.record

        def send() -> None:
            self._producer.produce(
                self._names.topic(topic),
                key=record.key,
                value=record.value,
                headers=retry_headers.write(record.headers, hop, failure, self._group.name),
                partition=hop.origin.partition,
                # Now, not the record's own time: retention would delete an old one at once (apache/kafka#22849).
                timestamp_ms=self._clock.now_ms(),
            ).result()

        def refused(error: Exception) -> None:
            metrics.APPENDS_FAILED.labels(self._group.name, topic).inc()
            log.error("append refused", topic=topic, record=str(record), error=str(error))

        if not record.owned.active:
            return False  # another member owns it by now, and will append it
        return self._until_done(call, send, (PublishError,), refused)

    def _write(self, call: Call, script: Callable[[], Script[None]]) -> bool:
        def write() -> None:
            with self._pool.connection() as connection:
                run(connection, script())

        def refused(error: Exception) -> None:
            # Away, or refusing what we write: in both cases nothing may be committed past this record.
            (log.warning if is_away(error) else log.error)(
                "outcome not written", record=str(call.record), error=str(error)
            )

        return self._until_done(call, write, (psycopg.Error, PoolTimeout), refused)

    def _until_done(
        self,
        call: Call,
        action: Callable[[], None],
        expected: tuple[type[Exception], ...],
        told: Callable[[Exception], None],
    ) -> bool:
        """Try until it works: nothing is committed past this record meanwhile.

        Once at least, also after a revocation: the outcome row of a dead letter that is in the log belongs to it.
        """
        backoff = 0.5
        while True:
            try:
                action()
            except expected as error:
                told(error)
            else:
                return True
            if self._stopping.wait(backoff) or not call.record.owned.active:
                return False
            backoff = min(_BACKOFF_MAX, backoff * 2)

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
