"""Work that takes long, and the run that it is done for: it ends when the run is cancelled."""

import asyncio
from collections.abc import Coroutine
from typing import Any, TypeVar
from uuid import UUID

import psycopg

from offsetzero.consumers.context import Context
from offsetzero.retry.failures import Cancelled
from offsetzero.store import runs
from offsetzero.store.script import run

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
    run_id = run_id_of(ctx)
    if run_id is None:
        return await work
    task = asyncio.create_task(work)
    try:
        while not (await asyncio.wait({task}, timeout=LOOK_SECONDS))[0]:
            if await asyncio.to_thread(_is_cancelled, ctx, run_id):
                raise Cancelled("cancelled", "The run was cancelled.")
        return task.result()
    finally:
        task.cancel()
        await asyncio.wait({task})
        if not task.cancelled():
            task.exception()  # looked at: what it has raised after the cancellation is nobody's concern


def run_id_of(ctx: Context) -> UUID | None:
    """The run that the event in work belongs to, if it names one."""
    try:
        return UUID(ctx.meta.run_id) if ctx.meta.run_id else None
    except ValueError:
        return None


def _is_cancelled(ctx: Context, run_id: UUID) -> bool:
    try:
        with ctx.pool.connection() as connection:
            return run(connection, runs.is_cancelled(run_id))
    except psycopg.Error as error:  # the transaction of the handler will say it, and count no attempt
        ctx.log.warning("run not asked", error=str(error))
        return False
