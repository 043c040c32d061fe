"""A group's part of a run: its step's status, and the event when the run ends (design section 8)."""

from collections.abc import Sequence
from datetime import UTC, datetime

from offsetzero.consumers.working.calls import Call
from offsetzero.producers import outbox
from offsetzero.producers.records import Attributes
from offsetzero.retry.failures import Failure
from offsetzero.schemas.event import Event
from offsetzero.schemas.runs import RunCancelled, RunFailed, RunSucceeded
from offsetzero.store import runs
from offsetzero.store.processed import Outcome
from offsetzero.store.script import Script
from offsetzero.store.withheld import StepEnd


def start(call: Call, step: str) -> Script[bool]:
    """Show the step as running; False when the run was cancelled."""
    if call.run_id is None:
        return True
    return (yield from runs.start_step(call.run_id, step, call.hop.attempt))


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


def end(step_end: StepEnd | None, step: str, source: str) -> Script[None]:
    """End the step; when it was the last one, the run is over, and an event says so."""
    if step_end is None:
        return
    run_id, outcome = step_end.run_id, step_end.outcome
    reason, detail = step_end.reason or "", step_end.detail or ""
    if outcome is Outcome.CANCELLED:
        over = yield from runs.cancel_step(run_id, step, reason=reason, detail=detail)
    elif outcome in (Outcome.FAILED, Outcome.DEAD_LETTERED):
        over = yield from runs.fail_step(run_id, step, reason=reason, detail=detail)
    else:
        over = yield from runs.succeed_step(run_id, step, warning=step_end.warning)
    if over is not None:
        told: Attributes = {
            "source": source,
            "causation_id": step_end.causation_id,
            "correlation_id": step_end.correlation_id,
        }
        yield from outbox.record(_event(over), **told)


def wait(call: Call, step: str, failure: Failure, attempt: int, due_ms: int) -> Script[None]:
    """The step waits in a retry tier for its next attempt."""
    if call.run_id is not None:
        due = datetime.fromtimestamp(due_ms / 1000, UTC)
        yield from runs.wait_step(
            call.run_id, step, attempt=attempt, reason=failure.reason, detail=failure.detail, due=due
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
