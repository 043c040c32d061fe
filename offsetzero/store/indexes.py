"""Indexes that are made of rows which are there."""

import psycopg


def make(connection: psycopg.Connection, name: str, columns: str) -> bool:
    """Make an index that does not exist, or was left behind by one who was interrupted while he made it.

    Args:
        connection: in autocommit; the index is looked for, and its table found, where the search path says.
        name: of the index.
        columns: what comes after ON in its SQL.

    Returns:
        Whether it was made; False when it was there.
    """
    found = connection.execute("SELECT indisvalid FROM pg_index WHERE indexrelid = to_regclass(%s)", (name,)).fetchone()
    if found == (True,):
        return False
    if found is not None:
        drop(connection, name)
    connection.execute(f"CREATE INDEX CONCURRENTLY {name} ON {columns}".encode())
    return True


def drop(connection: psycopg.Connection, name: str) -> None:
    """Let go of an index beside those who write to its table; nothing when there is none of that name."""
    connection.execute(f"DROP INDEX CONCURRENTLY IF EXISTS {name}".encode())


def make_at_once(connection: psycopg.Connection, name: str, columns: str) -> bool:
    """The same while those who write to the table wait, in half the time: it is for one that nobody reads yet.

    To be made beside its writers an index waits until every transaction of the database has ended that is older, a
    long report's or a backup's, too; to be made so it waits for those who write to the table.
    """
    if connection.execute("SELECT to_regclass(%s) IS NOT NULL", (name,)).fetchone() == (True,):
        return False
    connection.execute(f"CREATE INDEX {name} ON {columns}".encode())
    return True
