"""A group's part of a run: its step's status, and the event when the run ends (design section 8)."""

from datetime import UTC, datetime

from offsetzero.consumers.working.calls import Call
from offsetzero.producers import outbox
from offsetzero.retry.failures import Failure
from offsetzero.schemas.event import Event
from offsetzero.schemas.runs import RunCancelled, RunFailed, RunSucceeded
from offsetzero.store import runs
from offsetzero.store.processed import Outcome
from offsetzero.store.script import Script


def start(call: Call, step: str) -> Script[bool]:
    """Show the step as running; False when the run was cancelled."""
    if call.run_id is None:
        return True
    return (yield from runs.start_step(call.run_id, step, call.hop.attempt))


def succeed(call: Call, step: str, warnings: list[str], source: str) -> Script[None]:
    """The step has succeeded; when it was the last one, so has the run."""
    if call.run_id is not None:
        end = yield from runs.succeed_step(call.run_id, step, warning="; ".join(warnings) or None)
        yield from _announce(end, call, source)


def wait(call: Call, step: str, failure: Failure, attempt: int, due_ms: int) -> Script[None]:
    """The step waits in a retry tier for its next attempt."""
    if call.run_id is not None:
        due = datetime.fromtimestamp(due_ms / 1000, UTC)
        yield from runs.wait_step(
            call.run_id, step, attempt=attempt, reason=failure.reason, detail=failure.detail, due=due
        )


def end(call: Call, step: str, outcome: Outcome, failure: Failure, source: str) -> Script[None]:
    """The step has failed, and the run with it; was cancelled; or has succeeded, with a warning, by doing nothing."""
    if outcome is Outcome.DISCARDED:
        yield from succeed(call, step, [f"discarded: {failure}"], source)
    elif outcome is Outcome.CANCELLED:
        yield from cancel(call, step, failure.reason, failure.detail, source)
    elif call.run_id is not None:
        end = yield from runs.fail_step(call.run_id, step, reason=failure.reason, detail=failure.detail)
        yield from _announce(end, call, source)


def cancel(call: Call, step: str, reason: str, detail: str, source: str) -> Script[None]:
    """The step was cancelled; when it was the last one, the run is over."""
    if call.run_id is not None:
        end = yield from runs.cancel_step(call.run_id, step, reason=reason, detail=detail)
        yield from _announce(end, call, source)


def _announce(end: runs.RunEnd | None, call: Call, source: str) -> Script[None]:
    if end is None:
        return
    event: Event
    if end.status == "succeeded":
        event = RunSucceeded(
            run_id=end.run_id,
            tenant_id=end.tenant_id,
            document_id=end.document_id,
            finished_at=end.finished_at,
        )
    elif end.status == "cancelled":
        event = RunCancelled(
            run_id=end.run_id,
            tenant_id=end.tenant_id,
            document_id=end.document_id,
            finished_at=end.finished_at,
        )
    else:
        event = RunFailed(
            run_id=end.run_id,
            tenant_id=end.tenant_id,
            document_id=end.document_id,
            step=end.step or "",
            reason=end.reason or "",
            detail=end.detail or "",
            finished_at=end.finished_at,
        )
    yield from outbox.record(event, source=source, causation_id=call.meta.id, correlation_id=call.meta.correlation_id)
