"""Bring a database to the state that `offsetzero.store.tables` describes, while others work with it."""

import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import psycopg
from alembic import command
from alembic.config import Config
from sqlalchemy import create_engine, text
from sqlalchemy.engine import Engine
from sqlalchemy.exc import OperationalError
from sqlalchemy.pool import NullPool

from offsetzero import logs
from offsetzero.clock import SYSTEM
from offsetzero.errors import ConfigurationError
from offsetzero.store import indexes

LOCK = 0x6F7A_6D69  # "ozmi": held while a database is migrated, so that two processes take turns
LOCK_SECONDS = 2.0
"""How long a migration waits for a table: all who come to it later wait behind the migration."""
PATIENCE_SECONDS = 600.0  # until a table is to be had
_PAUSE_SECONDS = 0.2
# The second of them: who uses the table has come to wait for another one, which this migration has changed before.
_IN_USE = (psycopg.errors.LockNotAvailable, psycopg.errors.DeadlockDetected)

INDEXES = {
    "ix_processed_events_not_applied": "processed_events (group_name, generation)"
    " WHERE outcome IN ('failed', 'dead-lettered')",
    "ix_documents_tenant_id_id": "documents (tenant_id, id) WHERE deleted_at IS NULL",
    "ix_run_steps_deadline": "run_steps (deadline) WHERE deadline IS NOT NULL",
    "ix_embeddings_hash_tenant_id": "embeddings (hash, tenant_id)",
    "ix_dead_letters_again": "dead_letters (group_name, event_id) WHERE redrive_no > 0",
    "ix_dead_letters_group_name_fingerprint": "dead_letters (group_name, fingerprint text_pattern_ops)",
    "ix_dead_letters_key": "dead_letters (key)",
    "ix_idempotency_keys_run_id": "idempotency_keys (run_id) WHERE run_id IS NOT NULL",
    "ix_webhook_deliveries_webhook_id_attempted_at": "webhook_deliveries (webhook_id, attempted_at)",
    "ix_runs_in_flight": "runs (tenant_id) WHERE finished_at IS NULL AND lane = 'normal'",
    "ix_outbox_waiting_by_key": "outbox (aggregateid, number)"
    " WHERE published_at IS NULL AND parked_at IS NULL AND aggregateid IS NOT NULL",
    "ix_outbox_waiting_by_shard": "outbox (shard, number)"
    " WHERE published_at IS NULL AND parked_at IS NULL AND shard IS NOT NULL",
    "ix_outbox_come": "outbox (xid) WHERE published_at IS NULL AND parked_at IS NULL AND xid IS NOT NULL",
}
"""Indexes of tables that are large and written to all the time: made beside the writers, after the migrations."""
REPLACED = ("ix_outbox_waiting",)
"""Indexes that others of these stand in for: they go once these are there."""

log = logs.get(__name__)


def engine(database_url: str) -> Engine:
    """A SQLAlchemy engine that connects as libpq would: sockets, several hosts and `sslmode` work."""
    return create_engine("postgresql+psycopg://", creator=lambda: psycopg.connect(database_url), poolclass=NullPool)


def upgrade(database_url: str) -> None:
    """Apply the migrations that the database lacks, each in a transaction, then make the indexes that are missing.

    Interrupted anywhere, the same call does the rest. Who works with the tables meanwhile goes on: no migration waits
    for one of them for longer than `LOCK_SECONDS`, and none holds one while an index of many rows is made.

    Args:
        database_url: a libpq URL (`postgresql://…`) of a PostgreSQL 15 or newer.

    Raises:
        ConfigurationError: the server is older than PostgreSQL 15; or a transaction keeps a table for very long.
        psycopg.OperationalError: the database cannot be reached.
        alembic.util.CommandError: the database is newer than this version of offsetzero knows.
    """
    with psycopg.connect(database_url, autocommit=True) as connection:
        if (version := connection.info.server_version) < 150_000:
            raise ConfigurationError(
                f"OFFSETZERO_DATABASE_URL: the server is PostgreSQL {version // 10_000}; use 15 or newer"
            )
        with _turn(connection):
            _migrate(database_url)
            for name, columns in INDEXES.items():
                indexes.make(connection, name, columns)
            for name in REPLACED:
                indexes.drop(connection, name)


@contextmanager
def _turn(connection: psycopg.Connection) -> Iterator[None]:
    """Be the only one. Asked for now and then: who waits in a statement has a snapshot, and a `CREATE INDEX
    CONCURRENTLY` waits for all who have an older one: the two would wait for each other."""
    while connection.execute("SELECT pg_try_advisory_lock(%s)", (LOCK,)).fetchone() != (True,):
        time.sleep(_PAUSE_SECONDS)
    yield
    connection.execute("SELECT pg_advisory_unlock(%s)", (LOCK,))  # or it ends with the connection


def _migrate(database_url: str) -> None:
    config = Config()
    config.set_main_option("script_location", str(Path(__file__).parent / "migrations").replace("%", "%%"))
    deadline = SYSTEM.monotonic() + PATIENCE_SECONDS
    with engine(database_url).connect() as connection:
        connection.execute(text("SELECT set_config('lock_timeout', :limit, false)"), {"limit": f"{LOCK_SECONDS}s"})
        connection.commit()
        config.attributes["connection"] = connection
        while True:
            try:
                return command.upgrade(config, "head")
            except OperationalError as error:
                if not isinstance(error.orig, _IN_USE):
                    raise
                connection.rollback()
                if SYSTEM.monotonic() >= deadline:
                    raise ConfigurationError(
                        f"the database: a table could not be changed for {PATIENCE_SECONDS:.0f} s, because others use"
                        f" it in transactions that do not end (see pg_stat_activity); end these, and migrate again:"
                        f" {str(error.orig).strip()}"
                    ) from error
            log.info("a table is in use, the migration is tried again")
            time.sleep(_PAUSE_SECONDS)  # those who have waited behind it come first
