"""Runs: every change is a compare-and-set by the table of `offsetzero.store.run_states`. Their steps: `run_steps`.

The row of the run is locked before its steps, so that exactly one caller sees a run end. Who works on many
runs in one transaction takes them in the order of their ids, otherwise two groups can deadlock.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from uuid import UUID

from offsetzero.store.lanes import Lane
from offsetzero.store.leases import UNLEASED
from offsetzero.store.run_states import RunStatus, StepStatus, before_run, before_step
from offsetzero.store.script import Script


@dataclass(frozen=True, slots=True)
class RunEnd:
    """How a run ended. `step`, `reason` and `detail` tell of the required step that failed first."""

    run_id: UUID
    tenant_id: str
    document_id: UUID
    status: RunStatus
    step: str | None
    reason: str | None
    detail: str | None
    finished_at: datetime


def create(
    run_id: UUID, tenant_id: str, document_id: UUID, steps: Sequence[str], lane: Lane = Lane.NORMAL
) -> Script[None]:
    """Add a queued run with the steps that it needs to end.

    Not of the time at which the transaction began, nor before its last run when the clock was set back: the newest run
    of a document, which one transaction at a time adds to, is the one that was added last.
    """
    yield (
        "INSERT INTO runs (id, tenant_id, document_id, lane, created_at) SELECT %s, %s, %s, %s, greatest("
        "clock_timestamp(), max(created_at) + interval '1 microsecond') FROM runs WHERE document_id = %s",
        (run_id, tenant_id, document_id, lane.value, document_id),
    )
    yield (
        "INSERT INTO run_steps (run_id, step, required) SELECT %s, unnest(%s::text[]), true",
        (run_id, list(steps)),
    )


def cancel(tenant_id: str, run_id: UUID) -> Script[RunEnd | None]:
    """Cancel a tenant's run with all of its steps that have not ended; what these still do has no effect on it.

    The run is held until the transaction ends, also when it had ended before: what the caller then keeps of it is of
    after an erasure, or found by it.

    Returns:
        How it ended; None when it had ended before, and when there is none.
    """
    yield "SELECT FROM runs WHERE id = %s AND tenant_id = %s FOR NO KEY UPDATE", (run_id, tenant_id)
    rows = yield (
        "UPDATE runs SET status = 'cancelled', finished_at = clock_timestamp() "
        "WHERE id = %s AND tenant_id = %s AND status = ANY (%s) RETURNING document_id, finished_at",
        (run_id, tenant_id, before_run(RunStatus.CANCELLED)),
    )
    if not rows:
        return None
    yield (
        "UPDATE run_steps SET status = 'cancelled', reason = 'cancelled', detail = NULL, due = NULL, "
        "owner = NULL, deadline = NULL, "
        "finished_at = clock_timestamp() WHERE run_id = %s AND status = ANY (%s)",
        (run_id, before_step(StepStatus.CANCELLED)),
    )
    document_id, finished_at = rows[0]
    return RunEnd(run_id, tenant_id, document_id, RunStatus.CANCELLED, None, None, None, finished_at)


def is_cancelled(run_id: UUID) -> Script[bool]:
    """Whether a run is cancelled: for work outside of transactions, which asks now and then."""
    rows = yield "SELECT 1 FROM runs WHERE id = %s AND status = 'cancelled'", (run_id,)
    return bool(rows)


def spend(run_id: UUID, step: str, input_tokens: int, output_tokens: int, estimated: int = 0) -> Script[None]:
    """Add to the tokens that a step has used, over all its attempts, however they and the run end.

    Args:
        estimated: how many of them the provider did not tell.
    """
    yield (
        "UPDATE run_steps SET input_tokens = coalesce(input_tokens, 0) + %s, "
        "output_tokens = coalesce(output_tokens, 0) + %s, estimated_tokens = coalesce(estimated_tokens, 0) + %s "
        "WHERE run_id = %s AND step = %s",
        (input_tokens, output_tokens, estimated, run_id, step),
    )


def progress(
    run_id: UUID, step: str, done: int, parts: int, *, begins: bool = False, fence: int = UNLEASED
) -> Script[None]:
    """Show how far a running step is; those who follow the run are told. Whoever has lost its lease shows nothing.

    Args:
        done: how many parts of its work are done; never fewer than were, whoever comes first.
        parts: of how many.
        begins: an attempt does; fewer may be done then.
        fence: of the lease.
    """
    if (yield from lock(run_id)) is None:
        return
    yield (
        "UPDATE run_steps SET parts = %s, parts_done = CASE WHEN %s THEN %s ELSE greatest(parts_done, %s) END "
        "WHERE run_id = %s AND step = %s AND status = 'running' AND %s IN (0, fence)",
        (parts, begins, done, done, run_id, step, fence),
    )


def lock_all(run_ids: Sequence[UUID]) -> Script[None]:
    """Hold runs until the transaction ends, in the order of their ids."""
    yield "SELECT FROM runs WHERE id = ANY (%s) ORDER BY id FOR NO KEY UPDATE", (list(run_ids),)


def lock_free(run_ids: Sequence[UUID]) -> Script[set[UUID]]:
    """Hold those runs that nobody holds, until the transaction ends, and give their ids; waits for none."""
    rows = yield (
        "SELECT id FROM runs WHERE id = ANY (%s) ORDER BY id FOR NO KEY UPDATE SKIP LOCKED",
        (list(run_ids),),
    )
    return {row[0] for row in rows}


def requeue_steps(steps: Sequence[tuple[UUID, str]]) -> Script[None]:
    """Set failed steps back to queued, with no attempts, and those failed runs that waited for one of them.

    For dead letters that an operator sends again, and events that another generation has applied. A run that another
    step has failed is failed again when these end.

    Args:
        steps: run and step; the runs are locked (see `lock_all`). One that is not failed stays as it is.
    """
    run_ids, names = [run_id for run_id, _ in steps], [step for _, step in steps]
    yield (
        "WITH queued AS (UPDATE run_steps s SET status = 'queued', fence = s.fence + 1, attempts = 0, reason = NULL, "
        "detail = NULL, warning = NULL, due = NULL, started_at = NULL, finished_at = NULL "
        "FROM unnest(%s::uuid[], %s::text[]) AS again (run_id, step) JOIN runs r ON r.id = again.run_id "
        "WHERE s.run_id = again.run_id AND s.step = again.step AND s.status = ANY (%s) AND r.status <> 'cancelled' "
        "RETURNING s.run_id, s.required) "
        "UPDATE runs SET status = 'queued', started_at = NULL, finished_at = NULL "
        "WHERE status = ANY (%s) AND id IN (SELECT run_id FROM queued WHERE required)",
        (run_ids, names, before_step(StepStatus.QUEUED), before_run(RunStatus.QUEUED)),
    )


def lock(run_id: UUID) -> Script[RunStatus | None]:
    """Hold a run until the transaction ends; its status, None when there is none."""
    rows = yield ("SELECT status FROM runs WHERE id = %s FOR NO KEY UPDATE", (run_id,))
    return RunStatus(rows[0][0]) if rows else None
