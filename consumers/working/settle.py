"""After a failure: the decision is carried out before the record counts as done (design section 7)."""

import random
from collections.abc import Callable, Sequence
from dataclasses import replace

import psycopg
from psycopg_pool import PoolTimeout

from offsetzero import logs, metrics
from offsetzero.clock import Clock
from offsetzero.consumers.group import ConsumerGroup
from offsetzero.consumers.record import Record
from offsetzero.consumers.working import steps, telling
from offsetzero.consumers.working.appends import Append, Appender, TooLarge
from offsetzero.consumers.working.atwork import TIMED_OUT
from offsetzero.consumers.working.calls import Call
from offsetzero.consumers.working.holding import claim, hold_of
from offsetzero.consumers.working.owed import withhold
from offsetzero.consumers.working.run import Ending
from offsetzero.consumers.working.standing import Fence
from offsetzero.consumers.working.steps import Lessee
from offsetzero.consumers.working.transaction import NotNow
from offsetzero.retry import headers as retry_headers
from offsetzero.retry import pointers
from offsetzero.retry.classify import classify
from offsetzero.retry.failures import Failure, FailureClass, Transient
from offsetzero.retry.policy import Again, Decision, End, RetryPolicy, ToTier
from offsetzero.store import holds
from offsetzero.store.availability import is_away
from offsetzero.store.database import Pool
from offsetzero.store.leases import OVERDUE, Fenced
from offsetzero.store.processed import Outcome
from offsetzero.store.script import Script, run
from offsetzero.topics.catalogue import DLQ

PROBE_SECONDS = 5.0  # for our own database to show that it is not what took so long
TELL_SECONDS = 1.0

log = logs.get(__name__)


class Settler:
    """Carries out what the retry policy decides; blocks its caller, a worker, for one try.

    Args:
        group: whose failures these are.
        policy: the group's tiers.
        appender: appends to the group's retry and dead-letter topics.
        pool: connections to the database; None for a group without one, whose outcomes are its appends.
        source: `ce_source` of the run's events.
        clock: wall time for due times.
        dice: for jitter.
        name: of the group's generation; that of the group unless it is a later one.
        fence: what its transactions have besides.
        lessee: as its group's step of runs is leased; None for a group that is no step.
    """

    def __init__(
        self,
        group: ConsumerGroup,
        policy: RetryPolicy,
        appender: Appender,
        pool: Pool | None,
        source: str,
        clock: Clock,
        dice: random.Random,
        *,
        name: str | None = None,
        fence: Fence | None = None,
        lessee: Lessee | None = None,
    ) -> None:
        self._group = group
        self._policy = policy
        self._appender = appender
        self._pool = pool
        self._source = source
        self._clock = clock
        self._dice = dice
        self._fence = fence or Fence()
        self._lessee = lessee
        self._name = name or group.name
        self._letters = f"{self._name}.{DLQ}"
        self._told: dict[str, float] = {}  # when an outage was last logged, by its kind: all records in work meet it

    def end(self, call: Call, error: BaseException) -> Ending:
        """Settle what a handler raised, and say how the work on the record ended; raises nothing."""
        try:
            failure = classify(error, self._clock, self._group.rules)
            if failure.reason in (TIMED_OUT, OVERDUE) and not call.record.appended:
                self._ask_database(call.record)
            return self.settle(call, failure)
        except NotNow as refused:
            return self.not_now(call.record, refused)
        except Exception:  # an error of ours: it stops its partition, with a line a second, rather than the group
            log.exception("settling failed", record=str(call.record))
            return Ending.AGAIN

    def settle(self, call: Call, failure: Failure) -> Ending:
        """Retry, dead-letter or end a record. May be called again for it after `NotNow`: what is done stays done.

        Returns:
            Done when the outcome is safe; left when another member owns the record by now, and will settle it; again
            when its handler is to be called once more.

        Raises:
            NotNow: the broker or the database refuses; nothing may be committed past the record meanwhile.
        """
        record = call.record
        decision = self._decide(call, failure)
        if record.failed is None:
            record.failed = failure
            if not call.early:
                telling.tell(call, failure, decision)
            retry_headers.let_go(failure)  # it may stay for long, while the broker or the database is away
        if isinstance(decision, Again):
            record.failed = None
            record.calls += 1
            return Ending.AGAIN
        if isinstance(decision, End):
            self._finish(call, failure, decision.outcome)
            return Ending.DONE
        if not record.appended and not record.owned.active:
            return Ending.LEFT
        return self._move(call, failure, decision)

    def _decide(self, call: Call, failure: Failure) -> Decision:
        record, attempt, now_ms = call.record, call.hop.attempt, self._clock.now_ms()
        if call.early:
            return self._policy.wait_on(call.hop.until_ms, attempt, now_ms)
        bug_before = retry_headers.failed_as(record.headers) == FailureClass.BUG
        return self._policy.decide(failure, attempt, now_ms, self._dice, calls=record.calls + 1, bug_before=bug_before)

    def not_now(self, record: Record, error: BaseException) -> Ending:
        """The same attempt, a little later. An outage is logged once a second, with one of its records."""
        cause = error.__cause__ or error
        kind, now = type(cause).__name__, self._clock.monotonic()
        if now - self._told.get(kind, -TELL_SECONDS) >= TELL_SECONDS:
            self._told[kind] = now
            log.warning("not now, tried again", record=str(record), kind=kind, error=str(cause))
        return Ending.AGAIN

    def fenced(self, call: Call, error: Fenced) -> Ending:
        """What follows when its step was taken away while it was worked on: its transaction was rolled back.

        Where this member still reads the partition the record is begun again, by a lease of its own. That it took too
        long is a failure of the record, which counts: it could be so for ever.
        """
        self._lost(call)
        if error.overdue:
            return self.end(call, Transient(OVERDUE, "It took longer than its step may."))
        return self.not_now(call.record, error)

    def _lost(self, call: Call) -> None:
        call.record.fence = None
        metrics.STEPS_FENCED.labels(self._name).inc()

    def _ask_database(self, record: Record) -> None:
        """Where the database itself has held the handler up, it is called again, with the same attempt."""
        if self._pool is None:
            return
        try:
            with self._pool.connection(PROBE_SECONDS):
                pass  # there is one to be had
            self._pool.ask(PROBE_SECONDS)
        except (psycopg.Error, PoolTimeout) as error:
            if is_away(error):
                record.failed = None
                raise NotNow from error

    def _move(self, call: Call, failure: Failure, decision: Decision) -> Ending:
        """To a tier, or to the dead letters; what is too large for its place takes the next one."""
        record, tier = call.record, decision if isinstance(decision, ToTier) else None
        places = self._places(call, failure, tier)
        if not record.appended and tier is not None and self._lessee is not None:
            # Shown as waiting first: once the copy is in the log, its next attempt may start at any time.
            self._write(call, self._wait(call, failure, tier, self._lessee))
        if not record.appended and not self._put(call, places):
            return Ending.LEFT
        if tier is not None and record.outgrown % len(places) == 0:
            # Not a second time for a batch that is worked on again: the copy is the one that was appended then.
            record.moved = record.moved or (call.hop.redrive_no, call.hop.hop + 1, tier.due_ms)
            metrics.RETRIES.labels(self._name, tier.tier.name, failure.failure_class.value).inc()
        else:
            self._finish(call, failure, Outcome.DEAD_LETTERED)
            if record.held:
                record.moved = call.hop.redrive_no, call.hop.hop + 1, 0
        return Ending.DONE

    def _put(self, call: Call, places: Sequence[Callable[[], Append]]) -> bool:
        """Append it; False when another member owns the record by now: what is written before may have taken long."""
        record = call.record
        while True:
            append = places[record.outgrown % len(places)]()
            if append.topic == self._letters:
                self._hold(call)
            if not record.owned.active:
                return False
            try:
                self._appender.put(record, append)
                return True
            except TooLarge as error:
                if record.outgrown < len(places):  # else it is tried every second
                    log.warning("too large", topic=append.topic, record=str(record), error=str(error))
                record.outgrown += 1
                if record.outgrown % len(places) == 0:
                    self._appender.refuse(record, append, error)
                    raise NotNow from error

    def _hold(self, call: Call) -> None:
        """Before a dead letter is in the log, where an operator could redrive it."""
        record = call.record
        if self._group.on_dead_letter == "hold" and record.key is not None:
            self._write(call, holds.place(self._group.name, hold_of(call, record.key), call.known_as))
            record.held = True

    def _places(self, call: Call, failure: Failure, tier: ToTier | None) -> Sequence[Callable[[], Append]]:
        """Where the record goes; then where it goes when its topic does not take its size."""
        attempt = call.hop.attempt

        def dead_letter() -> Append:
            return self._append(call, failure, self._letters, attempt)

        def pointer() -> Append:
            letter = dead_letter()
            headers = pointers.write(letter.headers, call.record.value, call.record.key)
            return replace(letter, key=pointers.key_of(call.record.key), value=pointers.VALUE, headers=headers)

        if tier is None:
            return dead_letter, pointer
        topic = f"{self._name}.{tier.tier.name}"
        return (
            lambda: self._append(call, failure, topic, tier.attempt, tier.due_ms, tier.until_ms),
            dead_letter,
            pointer,
        )

    def _append(
        self, call: Call, failure: Failure, topic: str, attempt: int, due_ms: int = 0, until_ms: int = 0
    ) -> Append:
        record = call.record
        hop = replace(call.hop, attempt=attempt, hop=call.hop.hop + 1, due_ms=due_ms, until_ms=until_ms)
        headers = retry_headers.write(record.headers, hop, failure, self._name, call.span)
        # Now, not the record's own time: retention would delete an old one at once (apache/kafka#22849).
        return Append(topic, record.key, record.value, headers, hop.origin.partition, self._clock.now_ms())

    def _finish(self, call: Call, failure: Failure, outcome: Outcome) -> None:
        def script() -> Script[None]:
            standing = yield from self._fence.enter()
            if not (yield from claim(self._group, call, outcome, silent=not standing.is_read)) or self._lessee is None:
                return
            end = steps.end_of(call, outcome, failure)
            if standing.is_read:
                yield from steps.end(end, self._group.name, self._source, (yield from steps.hold(call, self._lessee)))
            else:
                yield from withhold(call.identity, end, standing)

        self._write(call, script())
        if outcome is Outcome.DEAD_LETTERED:
            metrics.DEAD_LETTERS.labels(self._name, failure.failure_class.value).inc()
        metrics.EVENTS_HANDLED.labels(self._name, call.label, outcome.value).inc()

    def _wait(self, call: Call, failure: Failure, tier: ToTier, lessee: Lessee) -> Script[None]:
        if (yield from self._fence.enter()).is_read:
            yield from steps.wait(call, lessee, reason=failure.reason, detail=failure.detail, due_ms=tier.due_ms)

    def _write(self, call: Call, script: Script[None]) -> None:
        """Also when the partition was revoked meanwhile: the outcome of a dead letter in the log belongs to it."""
        if self._pool is None:
            return
        try:
            with self._pool.connection() as connection:
                run(connection, script)
        except Fenced as error:
            self._lost(call)
            raise NotNow from error
        except (psycopg.Error, PoolTimeout) as error:
            if not is_away(error):
                log.error("outcome refused", record=str(call.record), error=str(error))
            raise NotNow from error
