"""A backlog of one tenant's documents, as the API would have written them, in a minute and in one transaction."""

from collections.abc import Iterator
from datetime import UTC, datetime
from hashlib import sha256
from pathlib import Path
from typing import Any

import psycopg

from offsetzero.producers import runs
from offsetzero.schemas.ids import uuid7
from offsetzero.settings import Settings
from offsetzero.store import documents
from offsetzero.store.documents import Document
from offsetzero.store.objects import Objects
from offsetzero.store.script import Script, run

TENANT = "busy"
AT_ONCE = 1_000
_TRIED = 3
_WRITTEN = """
SELECT 'document', d.tenant_id, d.name, d.content_type, d.size_bytes, d.version, r.status, r.lane, r.last_event,
    (SELECT array_agg((s.step, s.required, s.status, s.fence)::text ORDER BY s.step) FROM run_steps s
        WHERE s.run_id = r.id),
    (SELECT array_agg((e.number, e.kind)::text ORDER BY e.number) FROM run_events e WHERE e.run_id = r.id),
    o.aggregatetype, o.aggregateid = d.id::text, o.type, o.topic, octet_length(o.payload),
    position(uuid_send(r.id) IN o.payload) + position(convert_to(r.id::text, 'UTF8') IN o.payload) > 0,
    (SELECT array_agg(h ORDER BY h) FROM jsonb_object_keys(o.headers) h), o.headers ->> 'ce_tenantid',
    (o.headers ->> 'ce_runid')::uuid = r.id, o.published_at, o.attempts, o.shard IS NOT NULL
FROM documents d JOIN runs r ON r.document_id = d.id JOIN outbox o ON o.aggregateid = d.id::text
WHERE d.id = ANY (%s) ORDER BY o.number
"""


def queue(database: str, home: Path, count: int) -> None:
    """Have documents of a tenant in the object store, the database and the outbox.

    The rows are made by the code that the API calls, statement by statement. They are sent a thousand documents at
    once; and what its questions are answered is known, for nobody else sees a transaction that has not ended: the
    document is new, and of those before it as many are in flight as may be.

    Args:
        database: where to; its groups and relay may be at work, and see all at the end.
        home: of `offsetzero up`.
        count: documents.
    """
    settings = Settings(home=home, database_url=database)
    with psycopg.connect(database) as connection:
        _compare(connection, settings, list(_documents(settings, range(_TRIED))))
        with connection.transaction():
            for begin in range(0, count, AT_ONCE):
                numbers = range(begin, min(begin + AT_ONCE, count))
                _write(connection, settings, numbers, list(_documents(settings, numbers)))


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


def _write(connection: psycopg.Connection[Any], settings: Settings, numbers: range, made: list[Document]) -> None:
    statements: dict[str, list[Any]] = {}
    for number, document in zip(numbers, made, strict=True):
        for script in (documents.add(document), runs.begin(document, settings)):
            _collect(script, statements, in_flight=min(number, settings.api.tenant_in_flight))
    with connection.cursor() as cursor:
        for statement, parameters in statements.items():
            cursor.executemany(statement.encode(), parameters)


def _collect(script: Script[Any], statements: dict[str, list[Any]], *, in_flight: int) -> None:
    rows: list[tuple[Any, ...]] | None = None
    try:
        while True:
            statement, parameters = script.send(rows)  # type: ignore[arg-type]
            if statement.startswith("SELECT count(*)"):
                rows = [(in_flight,)]
                continue
            if not statement.startswith("INSERT"):
                raise SystemExit(f"the API asks something else by now: {statement}")
            statements.setdefault(statement, []).append(parameters)
            rows = [(True,)]
    except StopIteration:
        pass


def _compare(connection: psycopg.Connection[Any], settings: Settings, few: list[Document]) -> None:
    """Write a few in both ways, and have none of it: the rows must be the same."""
    written = []
    for quickly in (False, True):
        with connection.transaction(force_rollback=True):
            if quickly:
                _write(connection, settings, range(len(few)), few)
            else:
                for document in few:
                    run(connection, documents.add(document))
                    run(connection, runs.begin(document, settings))
            written.append(connection.execute(_WRITTEN, ([one.id for one in few],)).fetchall())
    if len(written[0]) != len(few) or written[0] != written[1]:
        raise SystemExit(f"the API writes {written[0][:1]}, and this {written[1][:1]}")
