"""What a call of the endpoint has to do with its run: it ends when the run is cancelled, and what it costs is kept."""

import asyncio
from collections.abc import Coroutine
from typing import Any, TypeVar
from uuid import UUID

import psycopg

from offsetzero.consumers.context import Context
from offsetzero.retry.failures import Cancelled
from offsetzero.store import runs
from offsetzero.store.script import Script, run

T = TypeVar("T")
LOOK_SECONDS = 0.3
"""Between two looks at the run; a call is to end within a second of the cancellation."""


async def unless_cancelled(ctx: Context, work: Coroutine[Any, Any, T]) -> T:
    """Do something that takes long, and stop in the middle when the run is cancelled (term-llm#918, #790).

    Args:
        ctx: of the event in work; one without a run cannot be cancelled.
        work: is cancelled as a task is: a request of httpx closes its connection.

    Raises:
        Cancelled: the run is.
    """
    run_id = _run_id(ctx)
    if run_id is None:
        return await work
    task = asyncio.create_task(work)
    try:
        while not (await asyncio.wait({task}, timeout=LOOK_SECONDS))[0]:
            if await asyncio.to_thread(_ask, ctx, runs.is_cancelled(run_id)):
                raise Cancelled("cancelled", "The run was cancelled.")
        return task.result()
    finally:
        task.cancel()
        await asyncio.wait({task})
        if not task.cancelled():
            task.exception()  # looked at: what it has raised after the cancellation is nobody's concern


async def spent(ctx: Context, step: str, input_tokens: int | None, output_tokens: int | None) -> None:
    """Keep what a call has used, at once and whatever becomes of its answer, of the attempt, or of the run."""
    run_id = _run_id(ctx)
    if run_id is not None and (input_tokens or output_tokens):
        used = runs.spend(run_id, step, input_tokens or 0, output_tokens or 0)
        await asyncio.shield(asyncio.to_thread(_ask, ctx, used))


def _ask(ctx: Context, script: Script[T]) -> T | None:
    try:
        with ctx.pool.connection() as connection:
            return run(connection, script)
    except psycopg.Error as error:  # the transaction of the handler will say it, and count no attempt
        ctx.log.warning("run not asked", error=str(error))
        return None


def _run_id(ctx: Context) -> UUID | None:
    try:
        return UUID(ctx.meta.run_id) if ctx.meta.run_id else None
    except ValueError:
        return None
