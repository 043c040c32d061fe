"""The group `indexer`: documents into a full-text index that `GET /search` reads."""

from dataclasses import dataclass

from offsetzero.consumers.context import Context
from offsetzero.consumers.group import ConsumerGroup
from offsetzero.consumers.groups.documents import chunks, languages
from offsetzero.consumers.groups.documents.cleaning import clean_line
from offsetzero.consumers.groups.documents.load import DELETED, document_of, load
from offsetzero.consumers.groups.documents.pages import Extracted
from offsetzero.consumers.projection import Projection
from offsetzero.schemas.documents import DocumentDeleted, DocumentUploaded
from offsetzero.store import documents, index
from offsetzero.store.script import run

group = ConsumerGroup("indexer", step=True, projection=Projection(index.TABLES))


@dataclass(frozen=True, slots=True)
class Prepared:
    """What is known of a document before the transaction."""

    found: Extracted
    language: str
    pieces: list[tuple[int, int, str]]


@group.prepare(DocumentUploaded)
def extract(event: DocumentUploaded, ctx: Context) -> Prepared | None:
    """Read the document, outside the transaction; None when it was deleted."""
    found = load(event, ctx)
    if found is None:
        return None
    pieces = [(chunk.number, chunk.page, chunk.text) for chunk in chunks.split(found.pages)]
    return Prepared(found, languages.detect([page.text for page in found.pages]), pieces)


@group.handler(DocumentUploaded)
def add(event: DocumentUploaded, ctx: Context) -> None:
    """Put its chunks into the index, in place of those of an earlier attempt."""
    prepared: Prepared | None = ctx.prepared
    if prepared is None:
        ctx.warn(DELETED)
        return
    found, language, pieces = prepared.found, prepared.language, prepared.pieces
    # Names are not in the log, which is for ever; only who publishes documents of another kind may have them there.
    known = run(ctx.connection, documents.name(event.document_id))
    name = clean_line(event.name if known is None else known)[:255]
    stored = index.put(event.document_id, event.tenant_id, name, len(found.pages), pieces, language)
    if not run(ctx.connection, stored):
        ctx.warn(DELETED)
        return
    for warning in found.warnings:
        ctx.warn(warning)
    ctx.log.info(
        "indexed",
        document_id=str(event.document_id),
        pages=len(found.pages),
        chunks=len(pieces),
        language=language,
    )


@group.handler(DocumentDeleted)
def remove(event: DocumentDeleted, ctx: Context) -> None:
    """Remove its chunks; an upload that is handled later finds the mark and stays out."""
    run(ctx.connection, index.remove(event.document_id, event.tenant_id))


@group.tombstone
def remove_by_key(key: str | None, ctx: Context) -> None:
    """A tombstone says the same, by its key."""
    if (document_id := document_of(key)) is not None:
        run(ctx.connection, index.remove(document_id, ctx.meta.tenant_id or ""))
