"""Bring a database to the state that `offsetzero.store.tables` describes."""

from pathlib import Path

import psycopg
from alembic import command
from alembic.config import Config
from sqlalchemy import create_engine, text
from sqlalchemy.engine import Engine
from sqlalchemy.pool import NullPool

from offsetzero.errors import ConfigurationError

LOCK = 0x6F7A_6D69  # "ozmi": held while a database is migrated, so that two processes take turns


def engine(database_url: str) -> Engine:
    """A SQLAlchemy engine that connects as libpq would: sockets, several hosts and `sslmode` work."""
    return create_engine("postgresql+psycopg://", creator=lambda: psycopg.connect(database_url), poolclass=NullPool)


def upgrade(database_url: str) -> None:
    """Apply all migrations that the database lacks, in one transaction under an advisory lock.

    Args:
        database_url: a libpq URL (`postgresql://…`) of a PostgreSQL 15 or newer.

    Raises:
        ConfigurationError: the server is older than PostgreSQL 15.
        psycopg.OperationalError: the database cannot be reached.
        alembic.util.CommandError: the database is newer than this version of offsetzero knows.
    """
    config = Config()
    config.set_main_option("script_location", str(Path(__file__).parent / "migrations").replace("%", "%%"))
    with engine(database_url).begin() as connection:
        version = int(connection.execute(text("SHOW server_version_num")).scalar_one())
        if version < 150_000:
            raise ConfigurationError(
                f"OFFSETZERO_DATABASE_URL: the server is PostgreSQL {version // 10_000}; use 15 or newer"
            )
        connection.execute(text("SELECT pg_advisory_xact_lock(:lock)"), {"lock": LOCK})
        config.attributes["connection"] = connection
        command.upgrade(config, "head")
