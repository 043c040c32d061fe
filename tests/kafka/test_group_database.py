"""The group's own database goes away: no attempt is consumed, nothing is appended, work resumes by itself."""

import contextlib
from collections.abc import Callable
from typing import Any

import psycopg
from kafka.conftest import await_effects, uploaded

from offsetzero.consumers.context import Context
from offsetzero.consumers.group import ConsumerGroup
from offsetzero.producers.publisher import Publisher
from offsetzero.retry import dead_letters
from offsetzero.schemas.documents import DocumentUploaded
from offsetzero.settings import Settings
from offsetzero.store.database import pool
from offsetzero.topics import lag
from support import wait_until

Running = Callable[..., contextlib.AbstractContextManager[Any]]


@contextlib.contextmanager
def database_away(postgres_url: str, name: str) -> Any:
    """Refuses every connection to one database and ends those that are open."""
    with psycopg.connect(postgres_url, autocommit=True) as connection:
        connection.execute(f"ALTER DATABASE {name} ALLOW_CONNECTIONS false")
        connection.execute("SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE datname = %s", (name,))
        try:
            yield
        finally:
            connection.execute(f"ALTER DATABASE {name} ALLOW_CONNECTIONS true")


def test_work_resumes_with_the_same_attempt(settings: Settings, running: Running, postgres_url: str) -> None:
    url = settings.database_url.get_secret_value()
    with psycopg.connect(url, autocommit=True) as connection:
        connection.execute("CREATE TABLE effects (n bigserial, document_id uuid, note text, attempt int)")
    audit = ConsumerGroup("audit")
    tried: list[int] = []

    @audit.prepare(DocumentUploaded)
    def look(event: DocumentUploaded, ctx: Context) -> None:
        tried.append(ctx.attempt)
        with ctx.pool.connection(timeout=1) as connection:
            connection.execute("SELECT 1")

    @audit.handler(DocumentUploaded)
    def note(event: DocumentUploaded, ctx: Context) -> None:
        ctx.connection.execute(
            "INSERT INTO effects (document_id, note, attempt) VALUES (%s, %s, %s)",
            (event.document_id, event.name, ctx.attempt),
        )

    with Publisher(settings) as publisher, running(audit):
        publisher.publish(uploaded()).result(10)
        with psycopg.connect(url, autocommit=True) as connection:
            await_effects(connection, 1)
        with database_away(postgres_url, url.rpartition("/")[2]):
            for _ in range(20):
                publisher.publish(uploaded()).result(10)
            wait_until(lambda: behind(settings) == 20, what="20 records behind")
        with psycopg.connect(url, autocommit=True) as connection:
            rows = await_effects(connection, 21, 60)
        assert {attempt for _, _, attempt in rows} == {1}
        assert len(rows) == 21
        wait_until(lambda: behind(settings) == 0, what="lag 0")
    assert set(tried) == {1}
    assert list(dead_letters.read(settings, "audit")) == []
    retried = [one.high for one in lag.group_offsets(settings, "audit") if "retry" in one.topic]
    assert sum(retried) == 0


def behind(settings: Settings) -> int:
    return sum(one.lag for one in lag.group_offsets(settings, "audit", ["documents", "documents.bulk"]))


def test_the_database_notices_a_member_that_vanished(settings: Settings) -> None:
    """Its open transaction holds the claim of its event: whoever takes over waits for the end of that connection."""
    with pool(settings, 1) as connections, connections.connection() as connection:
        shown = [connection.execute(f"SHOW tcp_keepalives_{name}").fetchone() for name in ("idle", "interval", "count")]
    assert shown == [("10",), ("5",), ("3",)]
