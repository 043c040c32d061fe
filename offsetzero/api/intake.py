"""Take in a document: object first, then document, run and event in one transaction; and take it out again."""

import asyncio
from uuid import UUID

import obstore.exceptions
import psycopg
import psycopg_pool
from fastapi import Response
from starlette.background import BackgroundTask
from structlog.contextvars import bind_contextvars

from offsetzero import logs
from offsetzero.api import erasing, fetching
from offsetzero.api.fetching import ObjectRequest
from offsetzero.api.idempotency import Once, answer_of
from offsetzero.api.models import IntakeAnswer
from offsetzero.api.problems import Problem, not_found
from offsetzero.api.services import Services
from offsetzero.api.uploads import Upload
from offsetzero.producers import runs
from offsetzero.schemas.ids import uuid7
from offsetzero.store import documents
from offsetzero.store.database import AsyncConnection
from offsetzero.store.documents import Document, Intake
from offsetzero.store.lanes import Lane
from offsetzero.store.script import Script, arun

_NOT_ASKED = (psycopg_pool.PoolTimeout, psycopg_pool.TooManyRequests, psycopg_pool.PoolClosed)

log = logs.get(__name__)


async def take_in_named(once: Once, asked: ObjectRequest, *, force: bool = False, lane: Lane = Lane.NORMAL) -> Response:
    """As `take_in`, of an object that the request names. A repeat needs the object no more: it may be gone since.

    Raises:
        Problem: as `take_in` and `fetching.fetch`.
    """
    payload = asked.model_dump_json()
    if once.key is not None and (before := await once.services.run(once.answered(payload))) is not None:
        return before
    async with fetching.fetch(once.services, once.tenant_id, asked) as upload:
        return await take_in(once, upload, payload=payload, force=force, lane=lane)


async def take_in(
    once: Once, upload: Upload, *, payload: str | None = None, force: bool = False, lane: Lane = Lane.NORMAL
) -> Response:
    """Store a document and start its run: 202. The same content of one tenant is one document, and it has another run
    only when the last one failed or was cancelled; otherwise the answer is 200 with that run.

    Args:
        once: the request.
        upload: what it has brought.
        payload: what identifies it; by default the upload does.
        force: another run in any case.
        lane: the one that is asked for.

    Raises:
        Problem: 503, the object store does not take it; 409, the document is being deleted, or the first request with
            this key is at work; 422, the key was used for another request.
    """
    payload = payload or f"{upload.sha256} {upload.content_type} {upload.name}"
    again, content = once.services.again, (once.tenant_id, upload.sha256)
    before = await _look(once, payload, upload.sha256)
    if isinstance(before, Intake) and before.ended_badly and not force and await again.ended(content):
        before = await _look(once, payload, upload.sha256)
    if isinstance(before, Response):
        return before
    if before is None:
        return await _take_in_new(once, payload, upload, lane)
    stays = not before.ended_badly and not force
    if stays and once.key is None:
        return _answer(before, is_new=False)

    async def work(connection: AsyncConnection) -> Response:
        if stays:
            return _answer(before, is_new=False)
        return await _again(connection, once, before, upload, lane, force=force)

    if stays:
        return await once.do(payload, work)
    with again.doing(content):
        async with once.services.storing():
            return await once.do(payload, work)


async def reindex(once: Once, document_id: UUID, *, lane: Lane = Lane.NORMAL) -> Response:
    """Start another run of a document as it is: 202.

    Raises:
        Problem: 404; 409 and 422 as `take_in`.
    """

    def script() -> Script[Intake]:
        if not (yield from documents.lock(once.tenant_id, document_id)):
            raise not_found("document")
        document = yield from documents.find(once.tenant_id, document_id)
        assert document is not None  # noqa: S101 - it is held
        return (yield from runs.begin_again(document, once.services.settings, bulk=lane is Lane.BULK))

    async def work(connection: AsyncConnection) -> Response:
        return _answer(await arun(connection, script()), is_new=True)

    return await once.do("", work)


async def take_out(services: Services, tenant_id: str, document_id: UUID) -> None:
    """Erase a document: what we know of it is gone when this returns, or nothing is.

    Raises:
        Problem: 404; 503, the object store does not remove the content.
    """
    erased = erasing.erase(tenant_id, document_id, services.clock.now(), source=services.settings.source)
    async with services.storing(), services.pool.connection() as connection:
        found = await arun(connection, erased)
        if found is None:
            raise not_found("document")
        try:  # before the commit: what cannot be removed is not said to be erased
            await services.objects.delete(services.objects.key(found.document.uri))
        except (obstore.exceptions.BaseError, OSError) as error:
            raise _store_away("removed", error) from error


async def _look(once: Once, payload: str, sha256: str) -> Response | Intake | None:
    """What the request was answered before, else where the document stands."""
    answered = await once.services.ask(once.answered(payload)) if once.key is not None else None
    return answered or await once.services.intakes((once.tenant_id, sha256))


async def _take_in_new(once: Once, payload: str, upload: Upload, lane: Lane) -> Response:
    """Its object is removed again unless the document is recorded: it was another upload that brought it in first."""
    services = once.services
    document = _describe(services, once.tenant_id, upload, uuid7())
    await _put(services, document, upload)
    new = runs.prepare(document, services.settings, bulk=lane is Lane.BULK)
    recorded: bool | None = False  # None: it may be

    async def work(connection: AsyncConnection) -> Response:
        nonlocal recorded
        (taken,) = await arun(connection, runs.take_in([new], services.settings))
        recorded = taken is not None
        return _answer(taken if taken is not None else await arun(connection, _first(document)), is_new=recorded)

    try:
        if once.key is not None:
            return await once.do(payload, work)
        try:
            taken = await services.taken_in(new)
        except _NOT_ASKED:
            raise
        except (asyncio.CancelledError, psycopg.OperationalError):
            recorded = None
            raise
        recorded = taken is not None
        return _answer(taken if taken is not None else await services.ask(_first(document)), is_new=recorded)
    except BaseException:
        if recorded is not False:  # it may be a failure of the answer to a COMMIT that took place
            log.error("commit in doubt, object kept", key=erasing.key_of(document.tenant_id, document.id))
        raise
    finally:
        if recorded is False:
            await _discard(services, document)


async def _again(
    connection: AsyncConnection, once: Once, before: Intake, upload: Upload, lane: Lane, *, force: bool
) -> Response:
    """Give a document another run; of many uploads at once one does, in place of the run that was seen to have failed,
    unless each is told to.

    Its object is put while the document's row is held: nothing that is interrupted leaves one behind an erasure.
    Whatever fails here, the object stays: it had one before, of the same bytes.
    """
    document = _describe(once.services, once.tenant_id, upload, before.document_id)
    newest = await arun(connection, _held(document))
    if newest is None:
        raise _deleted()
    if newest.run_id != before.run_id and not force:
        return _answer(newest, is_new=False)
    await _put(once.services, document, upload)
    begun = runs.begin_again(document, once.services.settings, bulk=lane is Lane.BULK)
    return _answer(await arun(connection, begun), is_new=True)


def _answer(intake: Intake, *, is_new: bool) -> Response:
    bind_contextvars(run_id=str(intake.run_id))
    answer = IntakeAnswer.model_validate(intake)
    response = answer_of(answer, 202 if is_new else 200, Location=f"/runs/{intake.run_id}")
    response.background = BackgroundTask(_count, intake)  # once it is sent, and so committed
    return response


async def _count(intake: Intake) -> None:  # a coroutine: a plain function would be given a thread
    runs.count(intake)


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


def _first(document: Document) -> Script[Intake]:
    """The document that has brought in the same content first."""
    existing = yield from documents.find_intake(document.tenant_id, document.sha256)
    if existing is None:  # deleted between the two statements
        raise _deleted()
    return existing


def _held(document: Document) -> Script[Intake | None]:
    if not (yield from documents.lock(document.tenant_id, document.id)):
        return None
    return (yield from documents.find_intake(document.tenant_id, document.sha256))


def _deleted() -> Problem:
    return Problem(409, "conflict", "the same file is being deleted; send it again", headers={"Retry-After": "1"})


async def _discard(services: Services, document: Document) -> None:
    key = erasing.key_of(document.tenant_id, document.id)
    try:
        await services.objects.delete(key)
    except (obstore.exceptions.BaseError, OSError) as error:
        log.warning("object left behind", key=key, error=str(error))
