"""Begin a run: the run, its steps and the event that groups read, in one transaction.

The one door for a document's work, whoever asks for it: an upload, `POST /documents/{id}/reindex`, a schedule.
"""

from uuid import UUID

from offsetzero import metrics
from offsetzero.producers import outbox
from offsetzero.schemas.documents import DocumentUploaded
from offsetzero.schemas.ids import uuid7
from offsetzero.settings import Settings
from offsetzero.store import documents, lanes, runs
from offsetzero.store.documents import Document, Intake
from offsetzero.store.lanes import Lane
from offsetzero.store.run_states import RunStatus
from offsetzero.store.script import Script
from offsetzero.tracing import Span


def begin(
    document: Document,
    settings: Settings,
    *,
    event_id: UUID | None = None,
    bulk: bool = False,
    span: Span | None = None,
) -> Script[Intake]:
    """Begin the run of a document that was just written.

    Args:
        document: as it is stored; its version becomes the event's sequence.
        settings: name the required steps and the source.
        event_id: of the event; by default a new one.
        span: what it is done for; by default the request in work.
        bulk: ask for the lane for backfill. It is taken, too, while the tenant has as many runs in flight as
            `OFFSETZERO_API__TENANT_IN_FLIGHT`; and a document whose last event is not handled yet keeps its lane.

    Returns:
        Where the document stands.
    """
    lane, why = yield from lanes.choose(
        document.tenant_id,
        document.id,
        Lane.BULK if bulk else Lane.NORMAL,
        is_new=document.version == 1,
        most=settings.api.tenant_in_flight,
    )
    run_id = uuid7()
    yield from runs.create(run_id, document.tenant_id, document.id, settings.api.required_steps, lane)
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
    told = outbox.record(
        event,
        source=settings.source,
        sequence=document.version,
        event_id=event_id or uuid7(),
        bulk=lane is Lane.BULK,
        traceparent=span.parent if span is not None else None,
    )
    yield from told
    return Intake(document.id, run_id, RunStatus.QUEUED, (lane, why))


def count(begun: Intake) -> None:
    """Count a run that this process has begun, once its transaction is committed."""
    if begun.chosen is not None:
        metrics.LANES.labels(*begun.chosen).inc()


def begin_again(
    document: Document,
    settings: Settings,
    *,
    event_id: UUID | None = None,
    bulk: bool = False,
    span: Span | None = None,
) -> Script[Intake]:
    """Begin another run of a document that is held (`documents.lock`),
    as it is described here, with its next version.

    Args, returns: as `begin`.
    """
    renewed = yield from documents.renew(document)
    return (yield from begin(renewed, settings, event_id=event_id, bulk=bulk, span=span))
