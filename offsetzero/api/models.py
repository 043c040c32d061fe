"""The shapes of answers and requests."""

from datetime import datetime
from typing import Any
from uuid import UUID

from pydantic import BaseModel, ConfigDict, Field
from pydantic.config import JsonDict

from offsetzero.store.lanes import Lane
from offsetzero.store.run_states import RunStatus, StepStatus
from offsetzero.store.search import Method

_DOCUMENT, _RUN = "01981f4e-5d3a-7c11-9b52-3f0f6a1c2d4e", "01981f4e-5d3b-7f60-8a1d-51c2b7e09a33"
AT = "2026-01-31T12:00:00.250000Z"


def like(**example: Any) -> ConfigDict:
    """An answer that is read off an object, with an example for the OpenAPI document."""
    examples: JsonDict = {"examples": [example]}
    return ConfigDict(from_attributes=True, json_schema_extra=examples)


class Answer(BaseModel):
    """An answer that is read off an object."""

    model_config = ConfigDict(from_attributes=True)


class IntakeAnswer(Answer):
    """Where an uploaded document stands."""

    model_config = like(document_id=_DOCUMENT, run_id=_RUN, status="queued")

    document_id: UUID
    run_id: UUID
    status: RunStatus


class SummaryDetails(Answer):
    """How a summary was made."""

    model: str
    input_tokens: int | None
    output_tokens: int | None
    estimated_tokens: int | None = Field(description="Of these, those that the provider did not tell")
    created_at: datetime


class DocumentAnswer(Answer):
    """A document; `summary` is null until there is one."""

    model_config = like(
        document_id=_DOCUMENT,
        name="policy.pdf",
        content_type="application/pdf",
        size_bytes=2513,
        sha256="9f86d081884c7d659a2feaa0c55ad015a3bf4f1b2b0b822cd15d6c15b0f00a08",
        uploaded_at=AT,
        summary="Travel must be approved by the line manager before it is booked.",
        summary_details={
            "model": "gpt-4o-mini",
            "input_tokens": 812,
            "output_tokens": 64,
            "estimated_tokens": 0,
            "created_at": AT,
        },
    )

    document_id: UUID
    name: str
    content_type: str
    size_bytes: int
    sha256: str
    uploaded_at: datetime
    summary: str | None
    summary_details: SummaryDetails | None


class ListedAnswer(Answer):
    """A document of the catalogue."""

    document_id: UUID
    name: str
    content_type: str
    size_bytes: int
    uploaded_at: datetime


class CatalogueAnswer(Answer):
    """What a tenant has. `next` is the `before` of the next page, null on the last one."""

    model_config = like(
        count=1,
        size_bytes=2513,
        documents=[
            {
                "document_id": _DOCUMENT,
                "name": "policy.pdf",
                "content_type": "application/pdf",
                "size_bytes": 2513,
                "uploaded_at": AT,
            }
        ],
        next=None,
    )

    count: int
    size_bytes: int
    documents: list[ListedAnswer]
    next: UUID | None


class StepAnswer(Answer):
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
    input_tokens: int | None = Field(description="Used of a provider, over all attempts, whatever became of them")
    output_tokens: int | None
    estimated_tokens: int | None = Field(None, description="Of these, those that the provider did not tell")
    parts: int | None = Field(None, description="Into how many its work was cut, for a long document")
    parts_done: int | None = None


class RunAnswer(Answer):
    """A run of the pipeline on one document. `due` of a step is when its next attempt may start."""

    model_config = like(
        run_id=_RUN,
        document_id=_DOCUMENT,
        document_name="policy.pdf",
        status="running",
        lane="normal",
        created_at=AT,
        started_at=AT,
        finished_at=None,
        steps=[
            {
                "step": "summariser",
                "required": True,
                "status": "waiting",
                "attempts": 1,
                "reason": "provider-503",
                "detail": "The endpoint that summarises answered 503.",
                "warning": None,
                "due": "2026-01-31T12:01:02Z",
                "started_at": AT,
                "finished_at": None,
                "input_tokens": 812,
                "output_tokens": 0,
                "estimated_tokens": 0,
                "parts": None,
                "parts_done": None,
            }
        ],
    )

    run_id: UUID
    document_id: UUID
    document_name: str | None
    status: RunStatus
    lane: Lane = Field(description="`bulk`: behind what is urgent")
    created_at: datetime
    started_at: datetime | None
    finished_at: datetime | None
    steps: list[StepAnswer]


class RunEventAnswer(Answer):
    """A change of a run: what the event `run` of its stream has as data. That of `step` is a step."""

    run_id: UUID
    document_id: UUID
    status: RunStatus
    created_at: datetime
    started_at: datetime | None
    finished_at: datetime | None


class RunsAnswer(Answer):
    """A page of runs, newest first. `next` is the `before` of the next page."""

    runs: list[RunAnswer]
    next: UUID | None


class HitAnswer(Answer):
    """A document that matches; `snippet` is HTML with the hits in `<mark>`."""

    document_id: UUID
    name: str
    page: int
    rank: float
    snippet: str


class SearchAnswer(Answer):
    """Hits, best first; ranks of two answers cannot be compared."""

    model_config = like(
        query="travel",
        method="hybrid",
        left_out=None,
        hits=[
            {
                "document_id": _DOCUMENT,
                "name": "policy.pdf",
                "page": 1,
                "rank": 0.09,
                "snippet": "<mark>Travel</mark> must be approved by the line manager",
            }
        ],
    )

    query: str
    method: Method = Field(description="`words`, or `hybrid`: by words and by meaning")
    left_out: str | None = Field(
        description="Why meaning was left out, although the index has it: `no-endpoint`, `provider` (which may not be"
        " called now), `provider-timeout`, `provider-404` and so on; null when it was not"
    )
    hits: list[HitAnswer]
