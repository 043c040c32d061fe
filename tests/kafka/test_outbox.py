"""Ways into the outbox: psycopg, SQLAlchemy, plain SQL; and ways out for rows that cannot be published."""

import asyncio
import json
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from uuid import UUID, uuid4

import psycopg
import pytest
from kafka import relayed
from kafka.relayed import arrived
from sqlalchemy import create_engine
from sqlalchemy.orm import Session
from typer.testing import CliRunner

from offsetzero.cli.outbox import app
from offsetzero.producers import outbox
from offsetzero.schemas.codec import Codec
from offsetzero.schemas.documents import DocumentDeleted
from offsetzero.settings import Settings
from offsetzero.store import outbox as store
from offsetzero.store.script import run
from offsetzero.topics import cluster
from offsetzero.topics.catalogue import Topic
from support import wait_until

STORED = "SELECT id, aggregatetype, aggregateid, type, payload, topic, headers->>'ce_sequence', shard FROM outbox"


def _deleted(key: UUID | None = None) -> DocumentDeleted:
    return DocumentDeleted(document_id=key or uuid4(), tenant_id="t", deleted_at=datetime.now(UTC))


@pytest.fixture
def url(settings: Settings) -> str:
    return settings.database_url.get_secret_value()


@pytest.fixture
def connection(url: str) -> Iterator[psycopg.Connection]:
    with psycopg.connect(url, autocommit=True) as opened:
        yield opened


@contextmanager
def relaying(settings: Settings) -> Iterator[None]:
    cluster.ensure(settings, [Topic("documents", 1)])
    with relayed.relaying(settings):
        yield


def test_a_row_is_part_of_the_callers_transaction_in_psycopg_and_sqlalchemy(
    url: str, connection: psycopg.Connection
) -> None:
    engine = create_engine(url.replace("postgresql://", "postgresql+psycopg://", 1))
    ids = []
    with psycopg.connect(url) as plain:
        ids.append(outbox.add(plain, _deleted(), sequence=1))
    with engine.begin() as alchemy:
        ids.append(outbox.add(alchemy, _deleted(), sequence=1))
    with Session(engine) as session, session.begin():
        ids.append(outbox.add(session, _deleted(), sequence=1))
    with Session(engine) as session:
        outbox.add(session, _deleted())
        session.rollback()
    engine.dispose()
    _same(connection, ids)


def test_the_same_in_asyncio(url: str, connection: psycopg.Connection) -> None:
    async def write() -> UUID:
        async with await psycopg.AsyncConnection.connect(url) as plain:
            return await outbox.add_async(plain, _deleted(), sequence=1)

    _same(connection, [asyncio.run(write())])


def test_the_same_in_asyncio_with_sqlalchemy(url: str, connection: psycopg.Connection) -> None:
    """SQLAlchemy's asyncio needs greenlet, which a service brings that uses it."""
    from sqlalchemy.ext.asyncio import AsyncSession, create_async_engine

    async def write() -> list[UUID]:
        engine = create_async_engine(url.replace("postgresql://", "postgresql+psycopg://", 1))
        async with engine.begin() as alchemy:
            ids = [await outbox.add_async(alchemy, _deleted(), sequence=1)]
        async with AsyncSession(engine) as session, session.begin():
            ids.append(await outbox.add_async(session, _deleted(), sequence=1))
        async with AsyncSession(engine) as session:
            await outbox.add_async(session, _deleted())
            await session.rollback()
        await engine.dispose()
        return ids

    _same(connection, asyncio.run(write()))


def _same(connection: psycopg.Connection, ids: list[UUID]) -> None:
    """All ways have written the same, and nothing else is there."""
    rows = connection.execute(STORED).fetchall()
    assert sorted(row[0] for row in rows) == sorted(ids)
    for _, kind, key, event_type, payload, topic, sequence, shard in rows:
        assert (kind, event_type, topic, sequence) == ("document", "document.deleted", "documents", "1")
        assert Codec().decode(event_type, payload).key == key
        assert 0 <= shard < 32


def test_an_async_connection_is_sent_to_the_async_function(connection: psycopg.Connection) -> None:
    with pytest.raises(TypeError, match=r"outbox\.add: a sync connection of psycopg is needed.*, not builtins\.object"):
        outbox.add(object(), _deleted())  # type: ignore[arg-type]


def test_plain_sql_becomes_an_event_of_its_contract(settings: Settings, connection: psycopg.Connection) -> None:
    """A service without a line of Python: one INSERT with the columns of Debezium's router, JSON as payload."""
    key = uuid4()
    data = json.dumps({"document_id": str(key), "tenant_id": 'a "b" \\', "deleted_at": "2026-11-30T12:00:00Z"})
    row = connection.execute(
        "INSERT INTO outbox (aggregatetype, aggregateid, type, payload, headers) VALUES"
        " ('document', %s, 'document.deleted', convert_to(%s, 'UTF8'), jsonb_build_object('ce_sequence', '4'))"
        " RETURNING id",
        (str(key), data),
    ).fetchone()
    assert row is not None
    assert row[0].version == 7
    with relaying(settings):
        wait_until(lambda: connection.execute("SELECT FROM outbox WHERE published_at IS NULL").fetchone() is None)
    (record,) = arrived(settings, "documents")
    assert record[:3] == (str(row[0]), str(key), 4)


def test_a_poison_row_is_parked_until_somebody_retries_or_discards_it(
    settings: Settings, connection: psycopg.Connection, monkeypatch: pytest.MonkeyPatch, url: str
) -> None:
    monkeypatch.setenv("OFFSETZERO_DATABASE_URL", url)
    insert = (
        "INSERT INTO outbox (aggregatetype, aggregateid, type, payload)"
        " VALUES ('document', %s, 'document.deleted', convert_to(%s, 'UTF8')) RETURNING id"
    )

    def write(key: UUID, payload: str) -> str:
        row = connection.execute(insert, (str(key), payload)).fetchone()
        assert row is not None
        return str(row[0])

    def command(*arguments: str) -> str:
        ended = CliRunner().invoke(app, arguments, catch_exceptions=False)
        assert ended.exit_code == 0, ended.output
        return ended.stdout

    def published() -> set[str]:
        return {str(row[0]) for row in connection.execute("SELECT id FROM outbox WHERE published_at IS NOT NULL")}

    def mend(row: str, key: UUID) -> None:
        payload = _deleted(key).model_dump_json()
        connection.execute("UPDATE outbox SET payload = convert_to(%s, 'UTF8') WHERE id = %s", (payload, row))

    first, second = uuid4(), uuid4()
    assert command("list") == "No row is parked or refused.\n"
    poison = write(first, '{"document_id": 5}')
    waits = write(first, _deleted(first).model_dump_json())
    other = write(second, "no json")
    waits_too = write(second, _deleted(second).model_dump_json())
    with relaying(settings):
        wait_until(lambda: len(run(connection, store.troubled(10))) == 2)
        listed = json.loads(command("list", "--json"))
        assert [(one["id"], one["state"], one["behind"]) for one in listed] == [
            (poison, "parked", 1),
            (other, "parked", 1),
        ]
        assert "document_id" in listed[0]["error"]
        assert json.loads(command("show", poison))["payload"] == {"document_id": 5}
        assert published() == set()
        refused = CliRunner().invoke(app, ["discard", other])
        assert "--why" in str(refused.exception)
        gone = json.loads(command("discard", other, "--why", "a typing error", "--who", "eve"))
        assert (gone["id"], gone["payload"]) == (other, "no json")
        wait_until(lambda: published() == {waits_too})
        mend(poison, first)
        assert command("retry", "--all") == "1 rows are tried again.\n"
        wait_until(lambda: published() == {waits_too, poison, waits})
    assert command("list") == "No row is parked or refused.\n"
    (kept,) = json.loads(command("audit", "--json"))
    assert (kept["id"], kept["key"], kept["who"], kept["why"]) == (other, str(second), "eve", "a typing error")


def test_a_row_that_cannot_be_printed_is_not_discarded(
    connection: psycopg.Connection, monkeypatch: pytest.MonkeyPatch, url: str
) -> None:
    """What is printed is all that is left of it: with a full disk, or a reader that is gone, nothing would be."""
    monkeypatch.setenv("OFFSETZERO_DATABASE_URL", url)
    row = connection.execute(
        "INSERT INTO outbox (aggregatetype, aggregateid, type, error, parked_at)"
        " VALUES ('document', 'k', 'document.deleted', 'x', now()) RETURNING id"
    ).fetchone()
    assert row is not None

    def full(*_: object, **__: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("offsetzero.cli.outbox.print", full, raising=False)
    ended = CliRunner().invoke(app, ["discard", str(row[0]), "--why", "x"])
    assert isinstance(ended.exception, OSError)
    assert run(connection, store.find(row[0])) is not None
    connection.execute("DELETE FROM outbox WHERE id = %s", row)
