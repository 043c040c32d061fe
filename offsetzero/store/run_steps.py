"""One group's part of a run, from its lease to its end: every change is a compare-and-set, of the status and the fence.

The row of the run is locked before its steps, so that exactly one caller sees a run end. See `offsetzero.store.leases`.
"""

from datetime import datetime
from uuid import UUID

from offsetzero.store import runs
from offsetzero.store.leases import ALONE, IS_ANOTHERS, OVERDUE, UNLEASED, Fenced, NotOurs, Request, not_ours
from offsetzero.store.run_states import RunStatus, StepStatus, before_run, before_step, end_of
from offsetzero.store.runs import RunEnd
from offsetzero.store.script import Script
from offsetzero.store.sentences import storable


def start_step(run_id: UUID, step: str, attempt: int, request: Request = ALONE) -> Script[int | None]:
    """Mark a step as running, and lease it. A step that the run was not created with is added as not required.

    Args:
        attempt: 1 for the first.

    Returns:
        The fence of the lease; `UNLEASED` for a step that has ended, and for a run that does not exist (an event
        published by hand). None when the run was cancelled and there is nothing to do.

    Raises:
        NotOurs: another member reads the partition by now.
    """
    status = yield from runs.lock(run_id)
    if status is None:
        return UNLEASED
    if status == RunStatus.CANCELLED:
        return None
    rows = yield (
        "INSERT INTO run_steps AS s (run_id, step, status, attempts, started_at, fence, owner, deadline) "
        "SELECT %s, %s, 'running', %s, clock_timestamp(), 1, %s, clock_timestamp() + make_interval(secs => %s) "
        f"WHERE NOT {IS_ANOTHERS} "
        "ON CONFLICT (run_id, step) DO UPDATE SET status = 'running', fence = s.fence + 1, owner = excluded.owner, "
        "deadline = excluded.deadline, attempts = greatest(s.attempts, excluded.attempts), reason = NULL, "
        "detail = NULL, due = NULL, started_at = coalesce(s.started_at, excluded.started_at) "
        "WHERE s.status = ANY (%s) RETURNING s.fence",
        (
            *(run_id, step, attempt, str(request.owner) if request.owner else None, request.seconds, *request.stay),
            before_step(StepStatus.RUNNING),
        ),
    )
    if not rows:
        if (yield from not_ours(request.stay)):
            raise NotOurs
        return UNLEASED
    yield (
        "UPDATE runs SET status = 'running', started_at = clock_timestamp() WHERE id = %s AND status = ANY (%s)",
        (run_id, before_run(RunStatus.RUNNING)),
    )
    return int(rows[0][0])


def wait_step(
    run_id: UUID,
    step: str,
    *,
    attempt: int,
    reason: str,
    detail: str,
    due: datetime | None,
    fence: int = UNLEASED,
) -> Script[None]:
    """Mark a step as waiting for its next attempt; what waits is not leased (celery/kombu#337).

    Args:
        attempt: the attempt that failed, 1 for the first.
        reason: a stable code; `detail`: a sentence for people.
        due: when the next attempt may start; None when that is not known.
        fence: of the caller's lease; `UNLEASED` for one who needs none.

    Raises:
        Fenced: the lease is another's by now.
    """
    status = yield from runs.lock(run_id)
    if status is None or status == RunStatus.CANCELLED:
        return
    rows = yield (
        "INSERT INTO run_steps AS s (run_id, step, status, attempts, reason, detail, due, started_at) "
        "VALUES (%s, %s, 'waiting', %s, %s, %s, %s, clock_timestamp()) "
        "ON CONFLICT (run_id, step) DO UPDATE SET status = 'waiting', "
        "attempts = greatest(s.attempts, excluded.attempts), reason = excluded.reason, "
        "detail = excluded.detail, due = excluded.due, owner = NULL, deadline = NULL "
        "WHERE s.status = ANY (%s) AND %s IN (0, s.fence) RETURNING s.fence",
        (run_id, step, attempt, reason, _said(detail), due, before_step(StepStatus.WAITING), fence),
    )
    if not rows:
        yield from _compare(run_id, step, fence)


def succeed_step(
    run_id: UUID, step: str, *, warning: str | None = None, fence: int = UNLEASED
) -> Script[RunEnd | None]:
    """End a step well.

    Args:
        warning: what the user should know although it went well.
        fence: as for `wait_step`.

    Returns:
        How the run ended, if this call ended it.

    Raises:
        Fenced: the lease is another's by now.
    """
    said = None, None, warning
    return (yield from _end_step(run_id, step, StepStatus.SUCCEEDED, said, fence))


def fail_step(run_id: UUID, step: str, *, reason: str, detail: str, fence: int = UNLEASED) -> Script[RunEnd | None]:
    """End a step badly; as `succeed_step`. Other steps go on: their results stay readable."""
    return (yield from _end_step(run_id, step, StepStatus.FAILED, (reason, detail, None), fence))


def cancel_step(run_id: UUID, step: str, *, reason: str, detail: str, fence: int = UNLEASED) -> Script[RunEnd | None]:
    """End a step because somebody has asked to stop; as `succeed_step`. Other steps end by themselves.

    A run of which a step was cancelled, and none failed, is cancelled.
    """
    return (yield from _end_step(run_id, step, StepStatus.CANCELLED, (reason, detail, None), fence))


def _compare(run_id: UUID, step: str, fence: int) -> Script[None]:
    """After a change that was refused: because of the step's status, or of the lease?

    Raises:
        Fenced: the latter.
    """
    if fence != UNLEASED:
        rows = yield "SELECT fence, reason FROM run_steps WHERE run_id = %s AND step = %s", (run_id, step)
        if rows and rows[0][0] != fence:
            raise Fenced(overdue=rows[0][1] == OVERDUE)


def _end_step(
    run_id: UUID, step: str, status: StepStatus, said: tuple[str | None, str | None, str | None], fence: int
) -> Script[RunEnd | None]:
    reason, detail, warning = said
    run_status = yield from runs.lock(run_id)
    if run_status is None or (run_status == RunStatus.CANCELLED and status != StepStatus.CANCELLED):
        return None
    rows = yield (
        "INSERT INTO run_steps AS s (run_id, step, status, attempts, reason, detail, warning, started_at, "
        "finished_at) VALUES (%s, %s, %s, 1, %s, %s, %s, clock_timestamp(), clock_timestamp()) "
        "ON CONFLICT (run_id, step) DO UPDATE SET status = excluded.status, reason = excluded.reason, "
        "detail = excluded.detail, warning = excluded.warning, due = NULL, owner = NULL, deadline = NULL, "
        "attempts = greatest(s.attempts, 1), finished_at = clock_timestamp() "
        "WHERE s.status = ANY (%s) AND %s IN (0, s.fence) RETURNING s.fence",
        (run_id, step, status, reason, _said(detail), _said(warning), before_step(status), fence),
    )
    if not rows:
        yield from _compare(run_id, step, fence)
    if run_status not in before_run(RunStatus.SUCCEEDED):
        return None
    return (yield from _end_run(run_id))


def _end_run(run_id: UUID) -> Script[RunEnd | None]:
    steps = yield (
        "SELECT step, status, reason, detail FROM run_steps WHERE run_id = %s AND required ORDER BY finished_at, step",
        (run_id,),
    )
    status = end_of([item[1] for item in steps])
    if status is None:
        return None
    failed = next((item for item in steps if item[1] == StepStatus.FAILED), None)
    rows = yield (
        "UPDATE runs SET status = %s, started_at = coalesce(started_at, clock_timestamp()), "
        "finished_at = clock_timestamp() "
        "WHERE id = %s AND status = ANY (%s) RETURNING tenant_id, document_id, finished_at",
        (status, run_id, before_run(status)),
    )
    if not rows:
        return None
    tenant_id, document_id, finished_at = rows[0]
    step, _, reason, detail = failed or (None, None, None, None)
    return RunEnd(run_id, tenant_id, document_id, status, step, reason, detail, finished_at)


def _said(text: str | None) -> str | None:
    return None if text is None else storable(text)
