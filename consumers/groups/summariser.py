"""The group `summariser`: a summary of each document, by an OpenAI-compatible endpoint or on this machine."""

import asyncio
from uuid import UUID

from offsetzero.consumers.context import Context
from offsetzero.consumers.group import ConsumerGroup
from offsetzero.consumers.groups.documents.load import DELETED, document_of, load
from offsetzero.consumers.groups.in_run import unless_cancelled
from offsetzero.consumers.groups.model_endpoint import ModelEndpoint
from offsetzero.consumers.groups.summaries import Summary, local, mapreduce, questions
from offsetzero.consumers.groups.summaries.asking import Asking, Erased
from offsetzero.schemas.documents import DocumentDeleted, DocumentUploaded
from offsetzero.store import chunk_results, summaries
from offsetzero.store.script import run

PROVIDER = "llm"
"""The endpoint, as limits and metrics name it."""

group = ConsumerGroup("summariser", step=True)


@group.prepare(DocumentUploaded)
async def summarise(event: DocumentUploaded, ctx: Context) -> Summary | None:
    """Read the document and summarise it, outside the transaction; None when it was deleted."""
    found = await asyncio.to_thread(load, event, ctx)
    if found is None:
        return None
    if not found.has_text:
        return Summary("", "none", warnings=["the document has no text (only images?): there is no summary"])
    if ctx.settings.llm.base_url:
        return await unless_cancelled(ctx, _ask(event, found.text, ctx))
    return await asyncio.to_thread(local.summarise, found.text)


async def _ask(event: DocumentUploaded, text: str, ctx: Context) -> Summary | None:
    llm = ctx.settings.llm
    first = questions.about(text, llm.part_characters)
    async with ModelEndpoint(llm) as endpoint:
        asking = Asking(ctx, event.document_id, group.name, PROVIDER, endpoint, llm.model)
        try:
            await asking.begin(first)
            return await mapreduce.summarise(first, asking.ask, size=llm.part_characters, at_once=llm.parts_at_once)
        except Erased:
            return None


@group.handler(DocumentUploaded)
def store(event: DocumentUploaded, ctx: Context) -> None:
    """Store the summary, in place of that of an earlier attempt."""
    summary: Summary | None = ctx.prepared
    if summary is None or not run(
        ctx.connection,
        summaries.put(
            event.document_id,
            event.tenant_id,
            summary.text,
            summary.model,
            input_tokens=summary.input_tokens,
            output_tokens=summary.output_tokens,
            estimated_tokens=summary.estimated_tokens,
        ),
    ):
        ctx.warn(DELETED)
        return
    for warning in summary.warnings:
        ctx.warn(warning)
    ctx.log.info(
        "summarised",
        document_id=str(event.document_id),
        model=summary.model,
        input_tokens=summary.input_tokens,
        output_tokens=summary.output_tokens,
    )


@group.handler(DocumentDeleted)
def remove(event: DocumentDeleted, ctx: Context) -> None:
    """Remove the summary, and what it was made of; an upload that is handled later finds the mark and stays out."""
    _remove(event.document_id, event.tenant_id, ctx)


@group.tombstone
def remove_by_key(key: str | None, ctx: Context) -> None:
    """A tombstone says the same, by its key."""
    if (document_id := document_of(key)) is not None:
        _remove(document_id, ctx.meta.tenant_id or "", ctx)


def _remove(document_id: UUID, tenant_id: str, ctx: Context) -> None:
    run(ctx.connection, summaries.remove(document_id, tenant_id))
    run(ctx.connection, chunk_results.remove(document_id))
