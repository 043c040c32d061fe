"""Hands events to the functions of the groups indexer and summariser in the real database, without Kafka."""

import asyncio
from datetime import UTC, datetime
from typing import Any
from uuid import UUID, uuid4

from offsetzero import logs
from offsetzero.consumers.context import Context, Given, Source
from offsetzero.consumers.groups import indexer, summariser
from offsetzero.schemas.documents import DocumentDeleted, DocumentUploaded
from offsetzero.schemas.metadata import Metadata
from offsetzero.settings import Settings
from offsetzero.store import search
from offsetzero.store.database import pool
from offsetzero.store.objects import Objects
from offsetzero.store.script import run
from offsetzero.store.search import Hit

AT = datetime(2025, 1, 2, 3, 4, 5, tzinfo=UTC)


class Desk:
    """Hands events to the functions of a group, as the runtime does."""

    def __init__(self, settings: Settings, schema: str = "indexer_g1") -> None:
        self.settings = settings
        self.pool = pool(settings, 5, schema=schema)

    def context(self, event_id: str = "1", *, run_id: UUID | None = None, generation: int = 1) -> Context:
        given = Given(
            meta=Metadata(id=event_id, source="/test", type="test", run_id=str(run_id) if run_id else None),
            source=Source("documents", 0, 0, b"key", 0),
            attempt=1,
            idempotency_key=f"{event_id} {generation}",
            log=logs.get("test"),
            generation=generation,
        )
        return Context(given, self.settings, self.pool)

    def document(self, data: bytes, name: str = "a.pdf", kind: str = "application/pdf") -> DocumentUploaded:
        """A stored document and the event that tells of it."""
        document_id = uuid4()
        objects = Objects(self.settings.objects)
        path = self.settings.home / "upload"
        path.write_bytes(data)
        with path.open("rb") as file:
            asyncio.run(objects.put(f"documents/demo/{document_id}", file))
        return DocumentUploaded(
            document_id=document_id,
            tenant_id="demo",
            run_id=uuid4(),
            name=name,
            content_type=kind,
            uri=objects.uri(f"documents/demo/{document_id}"),
            size_bytes=len(data),
            sha256="0" * 64,
            uploaded_at=AT,
        )

    def index(self, event: DocumentUploaded) -> list[str]:
        """Let the indexer handle an upload; gives its warnings."""
        ctx = self.context()
        ctx.prepared = indexer.extract(event, ctx)
        with self.pool.connection() as ctx.connection:
            indexer.add(event, ctx)
        return ctx.warnings

    def summarise(self, event: DocumentUploaded, event_id: str = "1", generation: int = 1) -> list[str]:
        """Let the summariser handle an upload; gives its warnings."""
        ctx = self.context(event_id, run_id=event.run_id, generation=generation)
        ctx.prepared = asyncio.run(summariser.summarise(event, ctx))
        with self.pool.connection() as ctx.connection:
            summariser.store(event, ctx)
        return ctx.warnings

    def delete(self, group: Any, document_id: UUID) -> None:
        ctx = self.context()
        with self.pool.connection() as ctx.connection:
            group.remove(DocumentDeleted(document_id=document_id, tenant_id="demo", deleted_at=AT), ctx)

    def rows(self, query: str) -> list[tuple[Any, ...]]:
        with self.pool.connection() as connection:
            return connection.execute(query.encode()).fetchall()

    def search(self, query: str) -> list[Hit]:
        with self.pool.connection() as connection:
            return run(connection, search.search("demo", query, limit=10)).hits
