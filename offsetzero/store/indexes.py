"""Indexes that are made beside those who write to their table."""

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
        connection.execute(f"DROP INDEX CONCURRENTLY {name}".encode())
    connection.execute(f"CREATE INDEX CONCURRENTLY {name} ON {columns}".encode())
    return True
