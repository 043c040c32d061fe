"""Take in a document: object first, then document, run and event in one transaction; and take it out again."""

from uuid import UUID

import obstore.exceptions

from offsetzero import logs
from offsetzero.api.problems import Problem, not_found
from offsetzero.api.services import Services
from offsetzero.api.uploads import Upload
from offsetzero.producers import outbox
from offsetzero.schemas.documents import DocumentDeleted, DocumentUploaded
from offsetzero.schemas.ids import uuid7
from offsetzero.store import documents, runs
from offsetzero.store.documents import Document, Intake
from offsetzero.store.script import Script, arun

log = logs.get(__name__)


async def take_in(services: Services, tenant_id: str, upload: Upload) -> tuple[Intake, bool]:
    """Store a document and start its run.

    Returns:
        The document with its run, and whether the run is new: the same content of one tenant is one document, and
        it has another run only when the last one failed or was cancelled.

    Raises:
        Problem: 503, the object store does not take it; 409, the document is being deleted.
    """
    before = await services.run(documents.find_intake(tenant_id, upload.sha256))
    if before is not None and not before.ended_badly:
        return before, False
    document = _describe(services, tenant_id, upload, before.document_id if before else uuid7())
    await _put(services, document, upload)
    if before is not None:
        return await _again(services, document, before)
    intake = await _commit(services, document)
    if intake.document_id != document.id:
        await _discard(services, document)
        return intake, False
    return intake, True


async def take_out(services: Services, tenant_id: str, document_id: UUID) -> None:
    """Delete a document: marked at once, gone from the projections when the groups have handled the event.

    Raises:
        Problem: 404.
    """
    deleted_at = services.clock.now()
    async with services.pool.connection() as connection:
        document = await arun(connection, documents.delete(tenant_id, document_id, deleted_at))
        if document is None:
            raise not_found("document")
        event = DocumentDeleted(document_id=document_id, tenant_id=tenant_id, deleted_at=deleted_at)
        await outbox.add_async(connection, event, source=services.settings.source, sequence=document.version)
    await _discard(services, document)


def _describe(services: Services, tenant_id: str, upload: Upload, document_id: UUID) -> Document:
    return Document(
        id=document_id,
        tenant_id=tenant_id,
        name=upload.name,
        content_type=upload.content_type,
        uri=services.objects.uri(_key(tenant_id, document_id)),
        size_bytes=upload.size_bytes,
        sha256=upload.sha256,
        version=1,
        uploaded_at=services.clock.now(),
    )


def _key(tenant_id: str, document_id: UUID) -> str:
    return f"documents/{tenant_id}/{document_id}"


async def _put(services: Services, document: Document, upload: Upload) -> None:
    key = _key(document.tenant_id, document.id)
    upload.file.seek(0)
    try:
        await services.objects.put(key, upload.file)
    except (obstore.exceptions.BaseError, OSError) as error:
        log.error("object not stored", key=key, error=str(error))
        headers = {"Retry-After": "5"}
        raise Problem(503, "object-store-unavailable", "the document could not be stored", headers=headers) from error


async def _commit(services: Services, document: Document) -> Intake:
    in_doubt = False
    try:
        async with services.pool.connection() as connection:
            intake = await arun(connection, _record(document, services))
            in_doubt = True  # from here on a failure may be one of the answer to a COMMIT that took place
    except BaseException:
        if in_doubt:
            log.error("commit in doubt, object kept", key=_key(document.tenant_id, document.id))
        else:
            await _discard(services, document)
        raise
    return intake


async def _again(services: Services, document: Document, before: Intake) -> tuple[Intake, bool]:
    """Give a document another run. Whatever fails here, its object stays: it had one before, of the same bytes."""
    try:
        return await services.run(_restart(document, before, services))
    except Problem:
        await _discard(services, document)  # a deletion may have looked for the object before it was put again
        raise


def _record(document: Document, services: Services) -> Script[Intake]:
    if not (yield from documents.add(document)):
        existing = yield from documents.find_intake(document.tenant_id, document.sha256)
        if existing is None:  # deleted between the two statements
            raise _deleted()
        return existing
    return (yield from _start(document, services))


def _restart(document: Document, before: Intake, services: Services) -> Script[tuple[Intake, bool]]:
    """Start a run in place of the one that was seen to have ended badly; of many uploads at once one does."""
    newest = None
    if (yield from documents.lock(document.tenant_id, document.id)):
        newest = yield from documents.find_intake(document.tenant_id, document.sha256)
    if newest is None:
        raise _deleted()
    if newest.run_id != before.run_id:
        return newest, False
    renewed = yield from documents.renew(document)
    return (yield from _start(renewed, services)), True


def _start(document: Document, services: Services) -> Script[Intake]:
    run_id = uuid7()
    yield from runs.create(run_id, document.tenant_id, document.id, services.settings.api.required_steps)
    event = DocumentUploaded(
        document_id=document.id,
        tenant_id=document.tenant_id,
        run_id=run_id,
        name=document.name,
        content_type=document.content_type,
        uri=document.uri,
        size_bytes=document.size_bytes,
        sha256=document.sha256,
        uploaded_at=document.uploaded_at,
    )
    yield from outbox.record(event, source=services.settings.source, sequence=document.version)
    return Intake(document.id, run_id, runs.RunStatus.QUEUED)


def _deleted() -> Problem:
    return Problem(409, "conflict", "the same file is being deleted; send it again")


async def _discard(services: Services, document: Document) -> None:
    key = _key(document.tenant_id, document.id)
    try:
        await services.objects.delete(key)
    except (obstore.exceptions.BaseError, OSError) as error:
        log.warning("object left behind", key=key, error=str(error))
