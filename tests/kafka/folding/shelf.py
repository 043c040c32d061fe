"""A projection whose rows show what was applied, in which order; run by processes, from a copy in their folder.

The second word of an event's name says what happens to it: `once` and `twice` fail so often, `late` once and `stuck`
for an hour in generation 1, `open`, `discard` and `edit` are poison until the name is changed, `amend` in generation 1,
`stubborn` until it is redriven, and `mended` while there is a file `poison`.

While there is a file `slow` the new generation stays behind the old one, outside its transactions where it can; a file
`frozen` says that the old one stands still, and which events were published last: the new one does these late. A switch
that does not wait for it loses something.

Each event of one document of SHELF_TELLS has one published that has its id for a run.
"""

import contextlib
import hashlib
import os
import time
from collections import Counter
from pathlib import Path
from typing import Any
from uuid import UUID

from offsetzero import ConsumerGroup, DocumentDeleted, DocumentUploaded, Projection, RunSucceeded
from offsetzero.clock import SYSTEM
from offsetzero.retry.failures import Poison, Retry, Transient
from offsetzero.retry.policy import Tier

TABLES = """
CREATE TABLE docs (document_id uuid PRIMARY KEY, version bigint NOT NULL, name text, trail text NOT NULL);
CREATE TABLE counts (tenant_id text PRIMARY KEY, uploads bigint NOT NULL, deletes bigint NOT NULL);
"""
TELLS = int(os.environ.get("SHELF_TELLS", "1"))
HOLDS = os.environ.get("SHELF_ON_DEAD_LETTER") == "hold"
shelf = ConsumerGroup(
    "shelf",
    concurrency=32,  # of which most wait, to be behind
    tiers=[Tier("retry-1m", 0.3), Tier("retry-10m", 0.6)],
    on_dead_letter="hold" if HOLDS else "release",
    projection=Projection(TABLES),
)


def note(events: list[Any], contexts: list[Any], connection: Any) -> None:
    """Apply events in one transaction, and publish an event of each."""
    generation = connection.execute("SELECT current_schema()").fetchone()[0]
    for event, ctx in zip(events, contexts, strict=True):
        refuse(event, ctx, generation)
    if generation != "shelf_g1" and Path("slow").exists() and any(map(is_new, events, contexts)):
        time.sleep(0.1)  # the new one stays behind the old one
    ids = sorted({event.document_id for event in events})
    found = connection.execute("SELECT document_id, version, trail FROM docs WHERE document_id = ANY (%s)", (ids,))
    docs = {row[0]: (row[1], None, row[2]) for row in found}
    uploads: Counter[str] = Counter()
    deletes: Counter[str] = Counter()
    for event, ctx in zip(events, contexts, strict=True):
        name = event.name if isinstance(event, DocumentUploaded) else None
        version, _, trail = docs.get(event.document_id, (0, None, ""))
        docs[event.document_id] = version + 1, name, hashlib.md5(f"{trail}|{name}".encode()).hexdigest()  # noqa: S324
        (deletes if name is None else uploads)[event.tenant_id] += 1
        if event.document_id.int % TELLS == 0:
            ctx.publish(
                RunSucceeded(
                    run_id=UUID(ctx.meta.id),
                    tenant_id=event.tenant_id,
                    document_id=event.document_id,
                    finished_at=SYSTEM.now(),
                )
            )
    connection.execute(
        "INSERT INTO docs SELECT * FROM unnest(%s::uuid[], %s::bigint[], %s::text[], %s::text[])"
        " ON CONFLICT (document_id) DO UPDATE SET version = excluded.version, name = excluded.name,"
        " trail = excluded.trail",
        (list(docs), *([row[at] for row in docs.values()] for at in range(3))),
    )
    for tenant in sorted({*uploads, *deletes}):
        connection.execute(
            "INSERT INTO counts AS c VALUES (%s, %s, %s) ON CONFLICT (tenant_id) DO UPDATE"
            " SET uploads = c.uploads + excluded.uploads, deletes = c.deletes + excluded.deletes",
            (tenant, uploads[tenant], deletes[tenant]),
        )


def is_new(event: Any, ctx: Any) -> bool:
    """Whether it comes while the rebuild goes on, and not from a retry topic: those of a key come one by one."""
    return getattr(event, "name", "").startswith("live") and ctx.handled.hop.hop == 0


def refuse(event: Any, ctx: Any, generation: str) -> None:
    """Fail as the name of the event says."""
    trouble = event.name.partition(" ")[2] if isinstance(event, DocumentUploaded) else ""
    if not trouble:
        return
    first, is_redriven = generation == "shelf_g1", ctx.handled.hop.redrive_no > 0
    if ctx.attempt <= {"once": 1, "twice": 2, "late": int(first)}.get(trouble, 0):
        raise Transient("busy", "as it is called")
    if trouble == "stuck" and first:
        raise Retry("stuck", "as it is called", after=3600)
    if trouble in ("open", "discard", "edit") or (trouble == "amend" and first):
        raise Poison("corrupt", "as it is called")
    if trouble == "mended" and Path("poison").exists():
        raise Poison("corrupt", "as it is called")
    if trouble == "stubborn" and not is_redriven:
        raise Poison("corrupt", "until it is sent again")


if os.environ.get("SHELF_KIND") == "batch":

    @shelf.batch(DocumentUploaded, DocumentDeleted)
    def note_all(events: Any, ctx: Any) -> None:
        note(events, ctx.contexts, ctx.connection)

else:

    @shelf.prepare(DocumentUploaded)  # with it an outcome is looked for before; deletions are claimed without that
    def stay_behind(event: DocumentUploaded, ctx: Any) -> None:
        if ctx.generation == 1 or not is_new(event, ctx) or not Path("slow").exists():
            return
        time.sleep(0.5)
        end = time.monotonic() + 5.0
        with contextlib.suppress(FileNotFoundError):
            while ctx.meta.id in Path("frozen").read_text() and time.monotonic() < end:
                time.sleep(0.05)

    @shelf.handler(DocumentUploaded)
    def note_upload(event: DocumentUploaded, ctx: Any) -> None:
        note([event], [ctx], ctx.connection)

    @shelf.handler(DocumentDeleted)
    def note_delete(event: DocumentDeleted, ctx: Any) -> None:
        note([event], [ctx], ctx.connection)
