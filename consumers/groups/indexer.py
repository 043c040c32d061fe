"""The group `indexer`: documents into a full-text index that `GET /search` reads."""

from offsetzero.consumers.context import Context
from offsetzero.consumers.group import ConsumerGroup
from offsetzero.consumers.groups.documents import chunks
from offsetzero.consumers.groups.documents.cleaning import clean_line
from offsetzero.consumers.groups.documents.load import DELETED, load
from offsetzero.consumers.groups.documents.pages import Extracted
from offsetzero.schemas.documents import DocumentDeleted, DocumentUploaded
from offsetzero.store import index
from offsetzero.store.script import run

group = ConsumerGroup("indexer", step=True)


@group.prepare(DocumentUploaded)
def extract(event: DocumentUploaded, ctx: Context) -> Extracted | None:
    """Read the document, outside the transaction."""
    return load(event, ctx)


@group.handler(DocumentUploaded)
def add(event: DocumentUploaded, ctx: Context) -> None:
    """Put its chunks into the index, in place of those of an earlier attempt."""
    found: Extracted | None = ctx.prepared
    if found is None:
        ctx.warn(DELETED)
        return
    pieces = [(chunk.number, chunk.page, chunk.text) for chunk in chunks.split(found.pages)]
    name = clean_line(event.name)[:255]
    stored = index.put(event.document_id, event.tenant_id, name, len(found.pages), pieces, found.language)
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
        language=found.language,
    )


@group.handler(DocumentDeleted)
def remove(event: DocumentDeleted, ctx: Context) -> None:
    """Remove its chunks; an upload that is handled later finds the mark and stays out."""
    run(ctx.connection, index.remove(event.document_id, event.tenant_id))
