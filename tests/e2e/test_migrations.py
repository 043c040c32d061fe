"""The migrations lead to what the tables say, whoever runs them and how often."""

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from uuid import uuid4

import psycopg
import pytest
from alembic import command
from alembic.autogenerate import compare_metadata
from alembic.config import Config
from alembic.migration import MigrationContext
from sqlalchemy.dialects.postgresql.base import ischema_names

from offsetzero.consumers.projection import Projection, make_tables
from offsetzero.generation import Generation
from offsetzero.producers.relay import forget_notifications
from offsetzero.store import index, migrate
from offsetzero.store.migrate import INDEXES, engine, upgrade
from offsetzero.store.tables import TransactionId, metadata
from support import wait_until


@pytest.fixture
def empty_database(postgres_url: str) -> Iterator[str]:
    """URL of a database in which nothing is."""
    name = f"m{uuid4().hex[:12]}"
    with psycopg.connect(postgres_url, autocommit=True) as connection:
        connection.execute(f"CREATE DATABASE {name}")
    yield postgres_url.rsplit("/", 1)[0] + "/" + name
    with psycopg.connect(postgres_url, autocommit=True) as connection:
        connection.execute(f"DROP DATABASE {name} WITH (FORCE)")


def _differences(url: str) -> list[object]:
    ischema_names["xid8"] = TransactionId  # which SQLAlchemy does not know
    with engine(url).connect() as connection:
        options = {"compare_type": True, "compare_server_default": True}
        found: list[object] = compare_metadata(MigrationContext.configure(connection, opts=options), metadata)
        return found


def _generated_and_checks(url: str) -> set[tuple[str, ...]]:
    """What Alembic does not compare: generated columns, checks and names of constraints."""
    with psycopg.connect(url) as connection:
        constraints = connection.execute(
            "SELECT conrelid::regclass::text, conname, pg_get_constraintdef(oid) FROM pg_constraint "
            "WHERE connamespace = 'public'::regnamespace AND contype <> 'n' "
            "AND conrelid::regclass::text <> 'alembic_version'"
        ).fetchall()
        generated = connection.execute(
            "SELECT table_name, column_name, generation_expression FROM information_schema.columns "
            "WHERE table_schema = 'public' AND is_generated = 'ALWAYS'"
        ).fetchall()
    return {*constraints, *generated}


def test_a_migrated_database_is_what_the_tables_say(empty_database: str, postgres_url: str) -> None:
    upgrade(empty_database)
    assert _differences(empty_database) == []
    migrated = _generated_and_checks(empty_database)
    with psycopg.connect(empty_database, autocommit=True) as connection:
        connection.execute("DROP SCHEMA public CASCADE")
        connection.execute("CREATE SCHEMA public")
    with engine(empty_database).begin() as described:
        metadata.create_all(described)
    assert migrated == _generated_and_checks(empty_database)


def test_the_first_generation_of_the_indexer_is_what_its_projection_says(empty_database: str) -> None:
    upgrade(empty_database)

    def described(schema: str) -> list[object]:
        with psycopg.connect(empty_database, options=f"-c search_path={schema},public") as connection:
            columns = connection.execute(
                "SELECT table_name, ordinal_position, column_name, data_type, is_nullable, column_default "
                "FROM information_schema.columns WHERE table_schema = %s ORDER BY 1, 2",
                (schema,),
            ).fetchall()
            constraints = connection.execute(
                "SELECT conname, pg_get_constraintdef(oid) FROM pg_constraint WHERE connamespace = %s::regnamespace "
                "ORDER BY 1",
                (schema,),
            ).fetchall()
            indexes = connection.execute(
                "SELECT indexname, replace(indexdef, schemaname || '.', '') FROM pg_indexes WHERE schemaname = %s "
                "ORDER BY 1",
                (schema,),
            ).fetchall()
            return [columns, constraints, indexes]

    with psycopg.connect(empty_database) as connection:
        make_tables(connection, Generation("indexer", 2), Projection(index.TABLES))
    assert described("indexer_g1") == described("indexer_g2")


def test_a_difference_would_be_seen(empty_database: str) -> None:
    upgrade(empty_database)
    with psycopg.connect(empty_database) as connection:
        connection.execute("ALTER TABLE documents ALTER COLUMN name DROP NOT NULL")
        connection.execute("DROP INDEX ix_outbox_waiting_by_shard")
    assert len(_differences(empty_database)) == 2


def test_processes_that_start_together_migrate_in_turns(empty_database: str) -> None:
    errors: list[BaseException] = []

    def migrate() -> None:
        try:
            upgrade(empty_database)
        except BaseException as error:
            errors.append(error)

    threads = [threading.Thread(target=migrate) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(30)
    assert errors == []
    assert _differences(empty_database) == []


def _put(connection: psycopg.Connection, event_id: str) -> None:
    connection.execute(
        "INSERT INTO processed_events (group_name, generation, source, event_id, redrive_no, outcome)"
        " VALUES ('g', 1, 's', %s, 0, 'failed')",
        (event_id,),
    )


@contextmanager
def _beside_a_slow_handler(url: str) -> Iterator[psycopg.Connection]:
    """Upgrade while a handler that takes long has written to `processed_events`; it ends when the block does.

    Yields another member's connection, once the upgrade waits for that handler.
    """
    upgrading = threading.Thread(target=upgrade, args=(url,))
    with psycopg.connect(url) as slow, psycopg.connect(url, autocommit=True) as member:
        _put(slow, "slow")
        upgrading.start()
        waits = (
            "SELECT FROM pg_stat_activity WHERE datname = current_database() AND wait_event_type = 'Lock'"
            " AND pid <> pg_backend_pid()"
        )
        wait_until(lambda: member.execute(waits).rowcount, what="the wait of the upgrade")
        yield member
        slow.commit()
        upgrading.join(30)
        assert not upgrading.is_alive()
        valid = "SELECT indisvalid FROM pg_index WHERE indexrelid = %s::regclass"
        assert [member.execute(valid, (name,)).fetchone() for name in INDEXES] == [(True,)] * len(INDEXES)


def _bring_to(database: str, revision: str) -> None:
    """Leave a database as that version of the tables made it."""
    upgrade(database)
    config = Config()
    config.set_main_option("script_location", str(Path(migrate.__file__).parent / "migrations"))
    with engine(database).connect() as connection:
        config.attributes["connection"] = connection
        command.downgrade(config, revision)


def test_members_do_not_wait_behind_a_migration_that_waits(
    empty_database: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """PostgreSQL lets nobody pass who comes later: a pipeline would stand still until the slowest handler has ended."""
    monkeypatch.setattr(migrate, "LOCK_SECONDS", 0.3)
    _bring_to(empty_database, "0011")
    with _beside_a_slow_handler(empty_database) as member:
        member.execute("SET lock_timeout = '2s'")
        for number in range(20):
            _put(member, str(number))
    assert _differences(empty_database) == []


def test_a_migration_that_is_ended_by_a_deadlock_is_tried_again(
    empty_database: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """PostgreSQL ends one of two that wait for each other: whoever was first to wait."""
    monkeypatch.setattr(migrate, "LOCK_SECONDS", 10.0)
    _bring_to(empty_database, "0019")
    upgrading = threading.Thread(target=upgrade, args=(empty_database,))
    with psycopg.connect(empty_database) as handler, psycopg.connect(empty_database, autocommit=True) as other:
        handler.execute("SET deadlock_timeout = '30s'")  # it is not the one that is ended
        handler.execute("SELECT FROM webhook_deliveries")
        upgrading.start()
        waits = "SELECT FROM pg_stat_activity WHERE datname = current_database() AND wait_event_type = 'Lock'"
        wait_until(lambda: other.execute(waits).rowcount, what="the wait of the upgrade")
        handler.execute("SELECT FROM replays")
        handler.commit()
    upgrading.join(30)
    assert not upgrading.is_alive()
    assert _differences(empty_database) == []


@pytest.mark.parametrize("is_left", [False, True], ids=["new", "left-invalid"])
def test_members_go_on_while_an_index_is_made(empty_database: str, *, is_left: bool) -> None:
    """Also one that was left behind invalid by somebody who was interrupted while he made it."""
    upgrade(empty_database)
    with psycopg.connect(empty_database, autocommit=True) as connection, psycopg.connect(empty_database) as slow:
        for name in INDEXES:
            connection.execute(f"DROP INDEX {name}".encode())
        for name, columns in INDEXES.items():
            _put(slow, name)
            slow.execute(f"LOCK TABLE {columns.split()[0]} IN ROW EXCLUSIVE MODE".encode())  # as who writes there
            if is_left:
                connection.execute("SET statement_timeout = '200ms'")
                with pytest.raises(psycopg.errors.QueryCanceled):
                    connection.execute(f"CREATE INDEX CONCURRENTLY {name} ON {columns}".encode())
    with _beside_a_slow_handler(empty_database) as member:
        member.execute("SET lock_timeout = '2s'")
        _put(member, "another")
    assert _differences(empty_database) == []


def test_an_insert_into_the_outbox_notifies_the_relay(database_url: str) -> None:
    with psycopg.connect(database_url, autocommit=True) as listener, psycopg.connect(database_url) as writer:
        listener.execute("LISTEN offsetzero_outbox")
        writer.execute(
            "INSERT INTO outbox (id, aggregatetype, aggregateid, type, topic) VALUES (%s, 'x', 'k', 'x.y', 't')",
            (uuid4(),),
        )
        writer.commit()
        assert [notice.channel for notice in listener.notifies(timeout=10, stop_after=1)] == ["offsetzero_outbox"]


def test_what_is_notified_to_a_busy_relay_is_not_kept(database_url: str) -> None:
    """With something to publish in every turn it never waits, and the connection would keep each of them for good."""
    with (
        psycopg.connect(database_url, autocommit=True) as listener,
        psycopg.connect(database_url, autocommit=True) as writer,
    ):
        listener.execute("LISTEN offsetzero_outbox")
        for number in range(3):
            writer.execute("SELECT pg_notify('offsetzero_outbox', %s)", (str(number),))
        listener.execute("SELECT 1")  # which takes them in
        forget_notifications(listener)
        assert list(listener.notifies(timeout=0)) == []
