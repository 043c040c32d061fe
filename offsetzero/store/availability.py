"""Tells a database that is away from a statement that is wrong."""

import psycopg
from psycopg_pool import PoolClosed, PoolTimeout

# SQLSTATE classes and codes (PostgreSQL documentation, appendix A) of a server that cannot serve now, whatever the
# statement: connection exceptions, shutdown and recovery, out of memory, disk or connections, a read-only standby.
_AWAY_CLASSES = ("08", "53")
_AWAY = frozenset({"57P01", "57P02", "57P03", "25006"})
_CONFLICTS = frozenset({"40001", "40P01"})


def is_away(error: BaseException) -> bool:
    """Whether an error says that the database cannot serve anybody now.

    An error without an SQLSTATE is one of the connection: the server's answer never came.
    """
    if isinstance(error, PoolTimeout | PoolClosed):
        return True
    if not isinstance(error, psycopg.Error):
        return False
    if error.sqlstate is None:
        return isinstance(error, psycopg.OperationalError | psycopg.InterfaceError)
    return error.sqlstate.startswith(_AWAY_CLASSES) or error.sqlstate in _AWAY


def is_conflict(error: BaseException) -> bool:
    """Whether a transaction lost against another one, and would succeed if it were tried again."""
    return isinstance(error, psycopg.Error) and error.sqlstate in _CONFLICTS
