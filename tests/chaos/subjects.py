"""The group under chaos, with every kind of handler: its members differ in that, as during a deployment.

Run as `offsetzero groups run subjects:KIND`. An effect is a plain insert, so that one that happens twice shows. A call
takes some milliseconds, so that there is always something which is read and not done when a process dies.
"""

import asyncio
import os
import random
import time
from typing import Any

from offsetzero import BatchContext, ConsumerGroup, Context, DocumentUploaded

GROUP = "audit"
KINDS = ("single", "prepared", "asynchronous", "mixed", "batch", "small_batch")
EFFECTS = (
    "CREATE TABLE effects (n bigserial PRIMARY KEY, key uuid NOT NULL, sequence int NOT NULL, attempt int NOT NULL,"
    " member int NOT NULL, at timestamptz NOT NULL DEFAULT clock_timestamp())"
)
SECONDS = 0.01
INSERT = "INSERT INTO effects (key, sequence, attempt, member) VALUES (%s, %s, %s, %s)"

single = ConsumerGroup(GROUP)
prepared = ConsumerGroup(GROUP)
asynchronous = ConsumerGroup(GROUP)
mixed = ConsumerGroup(GROUP)
batch = ConsumerGroup(GROUP)
small_batch = ConsumerGroup(GROUP, concurrency=4)


def row(event: DocumentUploaded, ctx: Context) -> tuple[Any, ...]:
    """What is written: an event's sequence within its key is in `size_bytes`."""
    return event.document_id, event.size_bytes, ctx.attempt, os.getpid()


@single.handler(DocumentUploaded)
@prepared.handler(DocumentUploaded)
def note(event: DocumentUploaded, ctx: Context) -> None:
    time.sleep(random.uniform(0.0, 2 * SECONDS))
    ctx.connection.execute(INSERT, row(event, ctx))


@asynchronous.handler(DocumentUploaded)
@mixed.handler(DocumentUploaded)
async def note_async(event: DocumentUploaded, ctx: Context) -> None:
    await asyncio.sleep(random.uniform(0.0, 2 * SECONDS))
    await ctx.connection.execute(INSERT, row(event, ctx))


@prepared.prepare(DocumentUploaded)
@mixed.prepare(DocumentUploaded)
def look(event: DocumentUploaded, ctx: Context) -> int:
    with ctx.pool.connection() as connection:
        return len(connection.execute("SELECT 1").fetchall())


@batch.batch(DocumentUploaded, size=200)
@small_batch.batch(DocumentUploaded, size=7)
def note_all(events: list[DocumentUploaded], ctx: BatchContext) -> None:
    time.sleep(random.uniform(0.0, 20 * SECONDS))
    with ctx.connection.cursor() as cursor:
        cursor.executemany(INSERT, [row(event, one) for event, one in zip(events, ctx.contexts, strict=True)])
