"""The group `indexer`: documents into an index that `GET /search` reads, of words, and of vectors with an endpoint."""

from dataclasses import dataclass
from uuid import UUID

from offsetzero.consumers.context import Context
from offsetzero.consumers.group import ConsumerGroup
from offsetzero.consumers.groups.documents import chunks, languages
from offsetzero.consumers.groups.documents.cleaning import clean_line
from offsetzero.consumers.groups.documents.load import DELETED, document_of, load
from offsetzero.consumers.groups.documents.pages import Extracted
from offsetzero.consumers.groups.embeddings import keeping, model_of
from offsetzero.consumers.projection import Extra, Projection
from offsetzero.retry.failures import Transient
from offsetzero.schemas.documents import DocumentDeleted, DocumentUploaded
from offsetzero.settings import Settings
from offsetzero.store import documents, embeddings, index, vectors
from offsetzero.store.embeddings import Texts
from offsetzero.store.script import run


def with_vectors(settings: Settings) -> Extra | None:
    """What the index has besides with an endpoint for embeddings: vectors of one model, and only of that."""
    if not settings.embeddings.base_url:
        return None
    model = model_of(settings.embeddings)
    return Extra(vectors.made_with(model), vectors.tables(model), vectors.INDEX, vectors.require)


group = ConsumerGroup("indexer", step=True, projection=Projection(index.TABLES, with_vectors))


@dataclass(frozen=True, slots=True)
class Prepared:
    """What is known of a document before the transaction; `texts` where vectors of its pieces are kept."""

    found: Extracted
    language: str
    pieces: list[tuple[int, int, str]]
    texts: Texts | None = None


@group.prepare(DocumentUploaded)
def extract(event: DocumentUploaded, ctx: Context) -> Prepared | None:
    """Read the document, outside the transaction; None when it was deleted."""
    found = load(event, ctx)
    if found is None:
        return None
    pieces = [(chunk.number, chunk.page, chunk.text) for chunk in chunks.split(found.pages)]
    texts = None
    if ctx.settings.embeddings.base_url:
        chunked = [text for _, _, text in pieces]
        texts = keeping.texts_of(ctx, event.document_id, event.tenant_id, chunked)
        if not keeping.have(ctx, texts, chunked, event.run_id):
            return None
    return Prepared(found, languages.detect([page.text for page in found.pages]), pieces, texts)


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
    if prepared.texts is not None and not run(
        ctx.connection, vectors.put(prepared.texts, [number for number, _, _ in pieces])
    ):
        raise Transient("vectors-gone", "the vectors of the document were taken out meanwhile; they are made again")
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
    _remove(event.document_id, event.tenant_id, ctx)


@group.tombstone
def remove_by_key(key: str | None, ctx: Context) -> None:
    """A tombstone says the same, by its key."""
    if (document_id := document_of(key)) is not None:
        _remove(document_id, ctx.meta.tenant_id or "", ctx)


def _remove(document_id: UUID, tenant_id: str, ctx: Context) -> None:
    run(ctx.connection, index.remove(document_id, tenant_id))
    run(ctx.connection, embeddings.forget(document_id))  # of one that was not erased by us, but by who published it
