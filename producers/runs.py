"""Begin a run: the run, its steps and the event that groups read, in one transaction.

The one door for a document's work, whoever asks for it: an upload, `POST /documents/{id}/reindex`, a schedule.
"""

from collections.abc import Sequence
from uuid import UUID

from offsetzero import metrics
from offsetzero.producers import outbox
from offsetzero.schemas.documents import DocumentUploaded
from offsetzero.schemas.ids import uuid7
from offsetzero.settings import Settings
from offsetzero.store import documents, intake, lanes, runs
from offsetzero.store.documents import Document, Intake
from offsetzero.store.intake import New
from offsetzero.store.lanes import Lane, Why
from offsetzero.store.run_states import RunStatus
from offsetzero.store.script import Script
from offsetzero.topics.catalogue import topic_of
from offsetzero.tracing import Span


def prepare(document: Document, settings: Settings, *, bulk: bool = False) -> New:
    """A document that is not written yet, with its run and its event, for `take_in`; part of the trace that goes on.

    Args:
        document: as it is to be stored.
        settings: name the source.
        bulk: ask for the lane for backfill, which a tenant over its quota takes in any case.
    """
    run_id = uuid7()
    event = outbox.row(_uploaded(document, run_id), source=settings.source, sequence=document.version)
    return New(document, run_id, Lane.BULK if bulk else Lane.NORMAL, event)


def take_in(news: Sequence[New], settings: Settings) -> Script[list[Intake | None]]:
    """Write documents with their runs and events, in one statement.

    Args:
        news: at least one.
        settings: name the required steps, and the quota of runs in flight.

    Returns:
        Where each stands; None for one whose content its tenant has already.
    """
    found = yield from intake.add(
        news,
        steps=settings.api.required_steps,
        most=settings.api.tenant_in_flight,
        bulk_topic=topic_of(DocumentUploaded.event_type, bulk=True),
    )
    return [None if lane is None else _begun(new, lane) for new, lane in zip(news, found, strict=True)]


def _begun(new: New, lane: Lane) -> Intake:
    why = Why.ASKED if lane is new.asked else Why.QUOTA
    return Intake(new.document.id, new.run_id, RunStatus.QUEUED, (lane, why))


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
    """Begin another run of a document that is held (`documents.lock`), as it is described here, with its next version.

    Args:
        document: as it is to be stored; the version that it has then becomes the event's sequence.
        settings: name the required steps and the source.
        event_id: of the event; by default a new one.
        span: what it is done for; by default the request in work.
        bulk: ask for the lane for backfill. It is taken, too, while the tenant has as many runs in flight as
            `OFFSETZERO_API__TENANT_IN_FLIGHT`; and a document whose last event is not handled yet keeps its lane.

    Returns:
        Where the document stands.
    """
    document = yield from documents.renew(document)
    asked = Lane.BULK if bulk else Lane.NORMAL
    lane, why = yield from lanes.choose(document.tenant_id, document.id, asked, most=settings.api.tenant_in_flight)
    run_id = uuid7()
    yield from runs.create(run_id, document.tenant_id, document.id, settings.api.required_steps, lane)
    yield from outbox.record(
        _uploaded(document, run_id),
        source=settings.source,
        sequence=document.version,
        event_id=event_id or uuid7(),
        bulk=lane is Lane.BULK,
        traceparent=span.parent if span is not None else None,
    )
    return Intake(document.id, run_id, RunStatus.QUEUED, (lane, why))


def _uploaded(document: Document, run_id: UUID) -> DocumentUploaded:
    return DocumentUploaded(
        document_id=document.id,
        tenant_id=document.tenant_id,
        run_id=run_id,
        content_type=document.content_type,
        uri=document.uri,
        size_bytes=document.size_bytes,
        sha256=document.sha256,
        uploaded_at=document.uploaded_at,
    )
