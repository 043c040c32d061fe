"""A backlog of one tenant's documents, as the API would have written them, in a minute and in one transaction."""

from collections.abc import Iterator
from datetime import UTC, datetime
from hashlib import sha256
from pathlib import Path

import psycopg

from offsetzero.producers import runs
from offsetzero.schemas.ids import uuid7
from offsetzero.settings import Settings
from offsetzero.store.documents import Document
from offsetzero.store.objects import Objects
from offsetzero.store.script import run

TENANT = "busy"
AT_ONCE = 1_000


def queue(database: str, home: Path, count: int) -> None:
    """Have documents of a tenant in the object store, the database and the outbox.

    The rows are written by the code that the API calls for all uploads that come at once, a thousand at a time.

    Args:
        database: where to; its groups and relay may be at work, and see all at the end.
        home: of `offsetzero up`.
        count: documents.
    """
    settings = Settings(home=home, database_url=database)
    with psycopg.connect(database) as connection:
        for begin in range(0, count, AT_ONCE):
            made = _documents(settings, range(begin, min(begin + AT_ONCE, count)))
            taken = run(connection, runs.take_in([runs.prepare(one, settings) for one in made], settings))
            assert None not in taken


def _documents(settings: Settings, numbers: range) -> Iterator[Document]:
    objects = Objects(settings.objects)
    folder = settings.home / "objects" / "documents" / TENANT
    folder.mkdir(parents=True, exist_ok=True)
    for number in numbers:
        document_id = uuid7()
        text = f"Document {number} of the busy tenant, {document_id}.\n".encode()
        (folder / str(document_id)).write_bytes(text)
        yield Document(
            id=document_id,
            tenant_id=TENANT,
            name="a.txt",
            content_type="text/plain",
            uri=objects.uri(f"documents/{TENANT}/{document_id}"),
            size_bytes=len(text),
            sha256=sha256(text).hexdigest(),
            version=1,
            uploaded_at=datetime.now(UTC),
        )
