"""Documents: upload, read, delete."""

from typing import Annotated, Any
from uuid import UUID

from fastapi import APIRouter, Query, Request, Response

from offsetzero.api import fetching, idempotency, intake, uploads
from offsetzero.api.described import Responses, errors
from offsetzero.api.fetching import ObjectRequest
from offsetzero.api.idempotency import MayRepeat
from offsetzero.api.models import DocumentAnswer, IntakeAnswer, SummaryDetails
from offsetzero.api.parameters import ExactRoute
from offsetzero.api.problems import not_found
from offsetzero.api.services import Tenant, WithServices
from offsetzero.consumers.groups.documents import formats
from offsetzero.store import documents, summaries
from offsetzero.store.documents import Document
from offsetzero.store.lanes import Lane
from offsetzero.store.script import Script
from offsetzero.store.summaries import StoredSummary

router = APIRouter(tags=["documents"], route_class=ExactRoute)

Priority = Annotated[Lane, Query(description="`bulk`: for backfill, which waits behind what is urgent")]

_FORM: dict[str, Any] = {
    "requestBody": {
        "required": True,
        "content": {
            "multipart/form-data": {
                "schema": {
                    "type": "object",
                    "required": [uploads.FIELD],
                    "properties": {
                        uploads.FIELD: {
                            "type": "string",
                            "format": "binary",
                            "description": f"One document: {formats.ACCEPTED}",
                        }
                    },
                },
                "encoding": {uploads.FIELD: {"contentType": ", ".join(one.content_type for one in formats.FORMATS)}},
            },
            "application/json": {"schema": ObjectRequest.model_json_schema()},
        },
    }
}

_UPLOADED: Responses = {
    202: {"model": IntakeAnswer, "description": "Taken in; its run is at `Location`"},
    200: {"model": IntakeAnswer, "description": "The same bytes were sent before: the run that they have"},
    **errors(
        "malformed-body",
        "idempotency-key-needed",
        "conflict",
        "too-large",
        "not-multipart",
        "unsupported-type",
        "empty-file",
        "object-missing",
        "no-file",
        "several-files",
        "object-store-unavailable",
        *idempotency.CODES,
    ),
}


@router.post(
    "/documents",
    status_code=202,
    operation_id="upload_document",
    summary="Upload a document",
    openapi_extra=_FORM,
    response_model=IntakeAnswer,
    responses=_UPLOADED,
)
async def upload(
    request: Request,
    once: MayRepeat,
    services: WithServices,
    force: Annotated[bool, Query(description="Start a run in any case; needs an `Idempotency-Key`")] = False,
    priority: Priority = Lane.NORMAL,
) -> Response:
    """Take in one document, or the object of the store that JSON names, and start its run.

    The same bytes again are answered with the run that they have, unless that failed or was cancelled, or `force` is
    true: then a new run starts, with the name and the content type of this upload.
    """
    if force:
        idempotency.needed(once)
    if fetching.is_named(request):
        return await intake.take_in_named(once, await fetching.named(request), force=force, lane=priority)
    async with uploads.receive(request, services.settings.api.max_upload_bytes) as received:
        return await intake.take_in(once, received, force=force, lane=priority)


@router.get(
    "/documents/{document_id}",
    operation_id="get_document",
    summary="Read a document",
    responses=errors("not-found"),
)
async def read(document_id: UUID, tenant: Tenant, services: WithServices) -> DocumentAnswer:
    """A document and, once it is there, its summary."""
    document, summary = await services.run(_find(tenant, document_id))
    if document is None:
        raise not_found("document")
    return DocumentAnswer(
        document_id=document.id,
        name=document.name,
        content_type=document.content_type,
        size_bytes=document.size_bytes,
        sha256=document.sha256,
        uploaded_at=document.uploaded_at,
        summary=(summary.text or None) if summary else None,
        summary_details=SummaryDetails.model_validate(summary) if summary else None,
    )


@router.post(
    "/documents/{document_id}/reindex",
    status_code=202,
    operation_id="reindex_document",
    summary="Work on a document once more",
    responses=errors("not-found", "idempotency-key-needed", *idempotency.CODES),
    response_model=IntakeAnswer,
)
async def reindex(document_id: UUID, once: MayRepeat, priority: Priority = Lane.NORMAL) -> Response:
    """Start another run of a document as it is: all groups read it again. Needs an `Idempotency-Key`."""
    idempotency.needed(once)
    return await intake.reindex(once, document_id, lane=priority)


@router.delete(
    "/documents/{document_id}",
    status_code=204,
    operation_id="delete_document",
    summary="Delete a document",
    responses=errors("not-found", "object-store-unavailable"),
)
async def delete(document_id: UUID, tenant: Tenant, services: WithServices) -> None:
    """Delete a document for good: its content, name, summary and entries in the index are gone when this answers.

    Its id, size and SHA-256 stay, and the ids of its runs with how they ended. Other groups remove what they have made
    of it when they handle `document.deleted`.
    """
    await intake.take_out(services, tenant, document_id)


def _find(tenant: str, document_id: UUID) -> Script[tuple[Document | None, StoredSummary | None]]:
    document = yield from documents.find(tenant, document_id)
    summary = yield from summaries.find(tenant, document_id)
    return document, summary
