"""The migrations lead to what the tables say, whoever runs them and how often."""

import threading
from collections.abc import Iterator
from uuid import uuid4

import psycopg
import pytest
from alembic.autogenerate import compare_metadata
from alembic.migration import MigrationContext

from offsetzero.consumers.projection import Projection, make_tables
from offsetzero.generation import Generation
from offsetzero.store import index
from offsetzero.store.migrate import engine, upgrade
from offsetzero.store.tables import metadata


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
        connection.execute("DROP INDEX ix_outbox_unpublished")
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


def test_an_insert_into_the_outbox_notifies_the_relay(database_url: str) -> None:
    with psycopg.connect(database_url, autocommit=True) as listener, psycopg.connect(database_url) as writer:
        listener.execute("LISTEN offsetzero_outbox")
        writer.execute(
            "INSERT INTO outbox (id, aggregatetype, aggregateid, type, topic) VALUES (%s, 'x', 'k', 'x.y', 't')",
            (uuid4(),),
        )
        writer.commit()
        assert [notice.channel for notice in listener.notifies(timeout=10, stop_after=1)] == ["offsetzero_outbox"]
