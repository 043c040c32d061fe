"""Take in a document: object first, then document, run and event in one transaction; and take it out again."""

from uuid import UUID

import obstore.exceptions

from offsetzero import logs
from offsetzero.api import erasing
from offsetzero.api.problems import Problem, not_found
from offsetzero.api.services import Services
from offsetzero.api.uploads import Upload
from offsetzero.producers import outbox
from offsetzero.schemas.documents import DocumentUploaded
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
    if before is not None:
        return await _again(services, document, before, upload)
    await _put(services, document, upload)
    intake = await _commit(services, document)
    if intake.document_id != document.id:
        await _discard(services, document)
        return intake, False
    return intake, True


async def take_out(services: Services, tenant_id: str, document_id: UUID) -> None:
    """Erase a document: what we know of it is gone when this returns, or nothing is.

    Raises:
        Problem: 404; 503, the object store does not remove the content.
    """
    erased = erasing.erase(tenant_id, document_id, services.clock.now(), source=services.settings.source)
    async with services.pool.connection() as connection:
        document = await arun(connection, erased)
        if document is None:
            raise not_found("document")
        try:  # before the commit: what cannot be removed is not said to be erased
            await services.objects.delete(services.objects.key(document.uri))
        except (obstore.exceptions.BaseError, OSError) as error:
            raise _store_away("removed", error) from error


def _describe(services: Services, tenant_id: str, upload: Upload, document_id: UUID) -> Document:
    return Document(
        id=document_id,
        tenant_id=tenant_id,
        name=upload.name,
        content_type=upload.content_type,
        uri=services.objects.uri(erasing.key_of(tenant_id, document_id)),
        size_bytes=upload.size_bytes,
        sha256=upload.sha256,
        version=1,
        uploaded_at=services.clock.now(),
    )


async def _put(services: Services, document: Document, upload: Upload) -> None:
    key = erasing.key_of(document.tenant_id, document.id)
    upload.file.seek(0)
    try:
        await services.objects.put(key, upload.file)
    except (obstore.exceptions.BaseError, OSError) as error:
        raise _store_away("stored", error) from error


def _store_away(what: str, error: Exception) -> Problem:
    log.error(f"object not {what}", error=str(error))
    headers = {"Retry-After": "5"}
    return Problem(503, "object-store-unavailable", f"the document could not be {what}", headers=headers)


async def _commit(services: Services, document: Document) -> Intake:
    in_doubt = False
    try:
        async with services.pool.connection() as connection:
            intake = await arun(connection, _record(document, services))
            in_doubt = True  # from here on a failure may be one of the answer to a COMMIT that took place
    except BaseException:
        if in_doubt:
            log.error("commit in doubt, object kept", key=erasing.key_of(document.tenant_id, document.id))
        else:
            await _discard(services, document)
        raise
    return intake


async def _again(services: Services, document: Document, before: Intake, upload: Upload) -> tuple[Intake, bool]:
    """Give a document another run; of many uploads at once one does, in place of the run that was seen to have failed.

    Its object is put while the document's row is held: nothing that is interrupted leaves one behind an erasure.
    Whatever fails here, the object stays: it had one before, of the same bytes.
    """
    async with services.pool.connection() as connection:
        newest = await arun(connection, _held(document))
        if newest is None:
            raise _deleted()
        if newest.run_id != before.run_id:
            return newest, False
        await _put(services, document, upload)
        return await arun(connection, _restart(document, services)), True


def _record(document: Document, services: Services) -> Script[Intake]:
    if not (yield from documents.add(document)):
        existing = yield from documents.find_intake(document.tenant_id, document.sha256)
        if existing is None:  # deleted between the two statements
            raise _deleted()
        return existing
    return (yield from _start(document, services))


def _held(document: Document) -> Script[Intake | None]:
    if not (yield from documents.lock(document.tenant_id, document.id)):
        return None
    return (yield from documents.find_intake(document.tenant_id, document.sha256))


def _restart(document: Document, services: Services) -> Script[Intake]:
    renewed = yield from documents.renew(document)
    return (yield from _start(renewed, services))


def _start(document: Document, services: Services) -> Script[Intake]:
    run_id = uuid7()
    yield from runs.create(run_id, document.tenant_id, document.id, services.settings.api.required_steps)
    event = DocumentUploaded(
        document_id=document.id,
        tenant_id=document.tenant_id,
        run_id=run_id,
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
    key = erasing.key_of(document.tenant_id, document.id)
    try:
        await services.objects.delete(key)
    except (obstore.exceptions.BaseError, OSError) as error:
        log.warning("object left behind", key=key, error=str(error))
