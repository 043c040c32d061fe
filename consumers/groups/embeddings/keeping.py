"""Have a vector of each text of a document, kept under its hash: none that is kept is asked for again."""

import asyncio
import hashlib
from collections.abc import Mapping, Sequence
from typing import TypeVar
from uuid import UUID

from offsetzero import metrics
from offsetzero.consumers.context import Context
from offsetzero.consumers.groups.embeddings import batches
from offsetzero.consumers.groups.embeddings.endpoint import PROVIDER, ask, model_of, read
from offsetzero.consumers.groups.in_run import unless_cancelled
from offsetzero.consumers.groups.model_endpoint import ModelEndpoint, Usage
from offsetzero.retry.failures import ProviderDown
from offsetzero.store import embeddings, generations, runs
from offsetzero.store.embeddings import Texts
from offsetzero.store.index import GROUP
from offsetzero.store.script import Script, run

T = TypeVar("T")


def texts_of(ctx: Context, document_id: UUID, tenant_id: str, chunks: Sequence[str]) -> Texts:
    """The chunks of a document as what vectors are kept by, for the model of the settings."""
    return Texts(document_id, tenant_id, model_of(ctx.settings.embeddings), [*map(embeddings.hash_of, chunks)])


def have(ctx: Context, texts: Texts, chunks: Sequence[str], run_id: UUID) -> bool:
    """Ask for the vectors that are not kept yet, and keep them, batch by batch. Blocks; for `prepare`.

    What a call has given is kept before the next one: an attempt that fails later pays for none of it again.

    Args:
        ctx: of the event in work.
        texts: see `texts_of`.
        chunks: the texts themselves, in the same order.
        run_id: that the event belongs to.

    Returns:
        False when the document was deleted.

    Raises:
        ProviderWaits, Failure, httpx.HTTPError: see `Context.provider` and `ask`.
        Cancelled: the run is.
    """
    by_hash = dict(zip(texts.hashes, chunks, strict=True))
    wanted = _in_transaction(ctx, embeddings.missing(texts))
    if wanted is None:
        return False
    unique = {one: by_hash[one] for one in wanted}  # a text may be in it twice
    metrics.EMBEDDED_TEXTS.labels("kept").inc(len(by_hash) - len(unique))
    if not unique:
        return True
    # A generation that is not read is a fold of the log: that somebody has cancelled a run is not in that.
    is_read = _in_transaction(ctx, generations.active(GROUP)) == ctx.generation
    work = _ask_all(ctx, texts, unique, run_id if is_read else None)
    return asyncio.run(unless_cancelled(ctx, work) if is_read else work)


async def _ask_all(ctx: Context, texts: Texts, unique: Mapping[bytes, str], run_id: UUID | None) -> bool:
    settings = ctx.settings.embeddings
    hashes = iter(unique)
    async with ModelEndpoint(settings) as endpoint:
        for batch in batches.split(unique.values(), settings.batch_texts, settings.batch_bytes):
            own = [next(hashes) for _ in batch]
            async with ctx.provider(PROVIDER):
                answer = await ask(
                    endpoint, batch, texts.model, shorten=settings.shorten, idempotency_key=_key(ctx, own)
                )
                used = Usage.of(answer).input_tokens or 0
                metrics.EMBEDDING_TOKENS.inc(used)
                if run_id is not None and used:  # also where the answer is of no use
                    _in_transaction(ctx, runs.spend(run_id, GROUP, used, 0))
                try:
                    vectors = read(answer, len(batch), texts.model)
                except ProviderDown as error:  # the breaker's line has no room for the numbers
                    ctx.log.error("vectors are not what the settings say", error=str(error))
                    raise
            metrics.EMBEDDED_TEXTS.labels("asked").inc(len(batch))
            if not _in_transaction(ctx, embeddings.keep(texts, dict(zip(own, vectors, strict=True)))):
                return False
    return True


def _key(ctx: Context, hashes: Sequence[bytes]) -> str:
    """The same for the same texts of the event."""
    return f"{ctx.idempotency_key}-{hashlib.sha256(b''.join(hashes)).hexdigest()[:16]}"


def _in_transaction(ctx: Context, script: Script[T]) -> T:
    with ctx.pool.connection() as connection:
        return run(connection, script)
