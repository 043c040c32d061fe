"""Events of runs: the key is the run id."""

from datetime import datetime
from uuid import UUID

from offsetzero.schemas.event import Event


class RunSucceeded(Event, type="run.succeeded", key="run_id"):
    """All required steps of a run have succeeded."""

    run_id: UUID
    tenant_id: str
    document_id: UUID
    finished_at: datetime


class RunFailed(Event, type="run.failed", key="run_id"):
    """A required step of a run has failed. `reason` is a stable code, `detail` a sentence for people."""

    run_id: UUID
    tenant_id: str
    document_id: UUID
    step: str
    reason: str
    detail: str
    finished_at: datetime


class RunCancelled(Event, type="run.cancelled", key="run_id"):
    """A run was cancelled at somebody's request."""

    run_id: UUID
    tenant_id: str
    document_id: UUID
    finished_at: datetime
