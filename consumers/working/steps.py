"""A group's part of a run: its step's status, and the event when the run ends (design section 8)."""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime

from offsetzero.consumers.working.calls import Call
from offsetzero.consumers.working.transaction import NotNow
from offsetzero.producers import outbox
from offsetzero.producers.records import Attributes
from offsetzero.retry.failures import Failure
from offsetzero.schemas.event import Event
from offsetzero.schemas.runs import RunCancelled, RunFailed, RunSucceeded
from offsetzero.store import run_steps, runs
from offsetzero.store.leases import UNLEASED, NotOurs, Owner, Request, Stay
from offsetzero.store.processed import Outcome
from offsetzero.store.script import Script
from offsetzero.store.withheld import StepEnd


@dataclass(frozen=True, slots=True)
class Lessee:
    """A member that works on a step of runs, as it leases it.

    Attributes:
        step: the name of the step, which is the group's.
        group: the consumer group, as Kafka knows it.
        sessions: the name of its connections to the database.
        seconds: for which one attempt may take.
    """

    step: str
    group: str
    sessions: str
    seconds: float


def start(call: Call, lessee: Lessee) -> Script[bool]:
    """Show the step as running, and lease it for the record; False when the run was cancelled.

    Raises:
        NotNow: another member reads the partition by now, and this one will soon be told; or else enters it again.
    """
    if call.run_id is None:
        return True
    record, owned = call.record, call.record.owned
    request = Request(
        Owner(lessee.group, owned.member, lessee.sessions) if owned.member else None,
        lessee.seconds,
        Stay(lessee.group, owned.topic, owned.partition, owned.name),
    )
    try:
        fence = yield from run_steps.start_step(call.run_id, lessee.step, call.hop.attempt, request)
    except NotOurs as error:
        owned.contested = True
        raise NotNow from error
    record.fence = fence if fence is not None else UNLEASED
    return fence is not None


def hold(call: Call, lessee: Lessee) -> Script[int]:
    """The fence of the record's lease; it is leased if it was not, or has been taken away."""
    if call.run_id is not None and call.record.fence is None:
        yield from start(call, lessee)
    return call.record.fence or UNLEASED


def end_of(
    call: Call, outcome: Outcome, failure: Failure | None = None, warnings: Sequence[str] = ()
) -> StepEnd | None:
    """How the step ends with an outcome of its event; None for an event that names no run.

    A discarded event has succeeded, with a warning, by doing nothing.
    """
    if call.run_id is None:
        return None
    warning = f"discarded: {failure}" if outcome is Outcome.DISCARDED else "; ".join(warnings)
    return StepEnd(
        outcome,
        call.run_id,
        failure.reason if failure is not None else None,
        failure.detail if failure is not None else None,
        warning or None,
        call.meta.correlation_id,
        call.meta.id,
    )


def end(step_end: StepEnd | None, step: str, source: str, fence: int = UNLEASED) -> Script[None]:
    """End the step; when it was the last one, the run is over, and an event says so.

    Raises:
        Fenced: the lease is another's by now.
    """
    if step_end is None:
        return
    run_id, outcome = step_end.run_id, step_end.outcome
    reason, detail = step_end.reason or "", step_end.detail or ""
    if outcome is Outcome.CANCELLED:
        over = yield from run_steps.cancel_step(run_id, step, reason=reason, detail=detail, fence=fence)
    elif outcome in (Outcome.FAILED, Outcome.DEAD_LETTERED):
        over = yield from run_steps.fail_step(run_id, step, reason=reason, detail=detail, fence=fence)
    else:
        over = yield from run_steps.succeed_step(run_id, step, warning=step_end.warning, fence=fence)
    if over is not None:
        told: Attributes = {
            "source": source,
            "causation_id": step_end.causation_id,
            "correlation_id": step_end.correlation_id,
        }
        yield from outbox.record(_event(over), **told)


def wait(call: Call, lessee: Lessee, *, reason: str, detail: str, due_ms: int | None) -> Script[None]:
    """The step waits for its next attempt, or for a provider; what waits is not leased.

    Args:
        due_ms: when the next attempt may start (milliseconds since 1970); None when that is not known.

    Raises:
        Fenced: the lease is another's by now.
        NotNow: as `start`.
    """
    if call.run_id is not None:
        due = datetime.fromtimestamp(due_ms / 1000, UTC) if due_ms is not None else None
        yield from run_steps.wait_step(
            call.run_id,
            lessee.step,
            attempt=call.hop.attempt,
            reason=reason,
            detail=detail,
            due=due,
            fence=(yield from hold(call, lessee)),
        )


def _event(end: runs.RunEnd) -> Event:
    if end.status == "succeeded":
        return RunSucceeded(
            run_id=end.run_id,
            tenant_id=end.tenant_id,
            document_id=end.document_id,
            finished_at=end.finished_at,
        )
    if end.status == "cancelled":
        return RunCancelled(
            run_id=end.run_id,
            tenant_id=end.tenant_id,
            document_id=end.document_id,
            finished_at=end.finished_at,
        )
    return RunFailed(
        run_id=end.run_id,
        tenant_id=end.tenant_id,
        document_id=end.document_id,
        step=end.step or "",
        reason=end.reason or "",
        detail=end.detail or "",
        finished_at=end.finished_at,
    )
