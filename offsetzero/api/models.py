"""The shapes of answers and requests."""

from datetime import datetime
from typing import Annotated
from uuid import UUID

from pydantic import BaseModel, ConfigDict, Field

from offsetzero.consumers.groups.webhooks.messages import EVENT_TYPES
from offsetzero.store.runs import RunStatus, StepStatus


class _Answer(BaseModel):
    model_config = ConfigDict(from_attributes=True)


class IntakeAnswer(_Answer):
    """Where an uploaded document stands."""

    document_id: UUID
    run_id: UUID
    status: RunStatus


class SummaryDetails(_Answer):
    """How a summary was made."""

    model: str
    input_tokens: int | None
    output_tokens: int | None
    created_at: datetime


class DocumentAnswer(_Answer):
    """A document; `summary` is null until there is one."""

    document_id: UUID
    name: str
    content_type: str
    size_bytes: int
    sha256: str
    uploaded_at: datetime
    summary: str | None
    summary_details: SummaryDetails | None


class StepAnswer(_Answer):
    """One group's part of a run."""

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


class RunAnswer(_Answer):
    """A run of the pipeline on one document."""

    run_id: UUID
    document_id: UUID
    document_name: str | None
    status: RunStatus
    created_at: datetime
    started_at: datetime | None
    finished_at: datetime | None
    steps: list[StepAnswer]


class RunsAnswer(_Answer):
    """A page of runs, newest first. `next` is the `before` of the next page."""

    runs: list[RunAnswer]
    next: UUID | None


class HitAnswer(_Answer):
    """A document that matches; `snippet` is HTML with the hits in `<mark>`."""

    document_id: UUID
    name: str
    page: int
    rank: float
    snippet: str


class SearchAnswer(_Answer):
    """Hits, best first."""

    query: str
    hits: list[HitAnswer]


class WebhookRequest(BaseModel):
    """Where to send which events."""

    model_config = ConfigDict(extra="forbid")

    url: Annotated[str, Field(min_length=1, max_length=2048)]
    event_types: Annotated[list[str], Field(min_length=1, max_length=len(EVENT_TYPES))] = list(EVENT_TYPES)


class WebhookAnswer(_Answer):
    """A subscription. `disabled_at` is set once its receiver has answered 410 Gone."""

    id: UUID
    url: str
    event_types: list[str]
    created_at: datetime
    disabled_at: datetime | None


class NewWebhookAnswer(WebhookAnswer):
    """A new subscription with the secret that verifies its messages: it is shown only this once."""

    secret: str


class WebhooksAnswer(_Answer):
    """A tenant's subscriptions, oldest first."""

    webhooks: list[WebhookAnswer]
