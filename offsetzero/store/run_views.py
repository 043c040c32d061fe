"""Runs as their tenants read them."""

from dataclasses import dataclass
from datetime import datetime
from typing import Any
from uuid import UUID

from offsetzero.store.lanes import Lane
from offsetzero.store.run_states import RunStatus, StepStatus
from offsetzero.store.script import Rows, Script


@dataclass(frozen=True, slots=True)
class StepView:
    """One group's part of a run. `due` is when the next attempt may start; tokens are those of all attempts,
    and `estimated_tokens` of them the provider did not tell. `parts` is into how many its work was cut."""

    step: str
    required: bool
    status: StepStatus
    attempts: int
    reason: str | None
    detail: str | None
    warning: str | None
    due: datetime | None
    started_at: datetime | None
    finished_at: datetime | None
    input_tokens: int | None
    output_tokens: int | None
    estimated_tokens: int | None
    parts: int | None
    parts_done: int | None


@dataclass(frozen=True, slots=True)
class RunView:
    """A run with its steps, the required ones first."""

    run_id: UUID
    document_id: UUID
    document_name: str | None
    status: RunStatus
    lane: Lane
    created_at: datetime
    started_at: datetime | None
    finished_at: datetime | None
    steps: list[StepView]


_RUNS = (
    "SELECT r.id, r.document_id, d.name, r.status, r.lane, r.created_at, r.started_at, r.finished_at "
    "FROM runs r LEFT JOIN documents d ON d.id = r.document_id WHERE r.tenant_id = %s"
)


def find(tenant_id: str, run_id: UUID) -> Script[RunView | None]:
    """A tenant's run; None when there is none and when it is another's."""
    rows = yield _RUNS + " AND r.id = %s", (tenant_id, run_id)
    views = yield from _with_steps(rows)
    return views[0] if views else None


def page(
    tenant_id: str,
    *,
    limit: int,
    before: UUID | None = None,
    status: RunStatus | None = None,
    document_id: UUID | None = None,
) -> Script[list[RunView]]:
    """A tenant's runs, newest first.

    Args:
        before: the id of the last run of the page before.
        status, document_id: only such runs.
    """
    rows = yield (
        _RUNS + " AND (%s::uuid IS NULL OR r.id < %s) AND (%s::text IS NULL OR r.status = %s) "
        "AND (%s::uuid IS NULL OR r.document_id = %s) ORDER BY r.id DESC LIMIT %s",
        (tenant_id, before, before, status, status, document_id, document_id, limit),
    )
    return (yield from _with_steps(rows))


def _with_steps(runs: Rows) -> Script[list[RunView]]:
    rows: Rows = []
    if runs:
        rows = yield (
            "SELECT run_id, step, required, status, attempts, reason, detail, warning, due, started_at, "
            "finished_at, input_tokens, output_tokens, estimated_tokens, parts, parts_done FROM run_steps "
            "WHERE run_id = ANY (%s) ORDER BY required DESC, step",
            ([run[0] for run in runs],),
        )
    steps: dict[UUID, list[StepView]] = {}
    for run_id, step, required, status, *rest in rows:
        steps.setdefault(run_id, []).append(StepView(step, required, StepStatus(status), *rest))
    return [_view(run, steps.get(run[0], [])) for run in runs]


def _view(run: tuple[Any, ...], steps: list[StepView]) -> RunView:
    run_id, document_id, name, status, lane, created, started, finished = run
    return RunView(run_id, document_id, name, RunStatus(status), Lane(lane), created, started, finished, steps)
