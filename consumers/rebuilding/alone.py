"""The connection of the only one who rebuilds a group: an advisory lock, held as long as the connection lives."""

import time
from collections.abc import Callable
from datetime import datetime

import psycopg

from offsetzero.clock import SYSTEM
from offsetzero.errors import RebuildRefused
from offsetzero.settings import Settings
from offsetzero.store import database
from offsetzero.store.database import Connection

LOCK = 0x6F7A_0006
"""First half of the advisory lock that a rebuild holds while it runs; the other is the hash of the group's name."""
END_SECONDS = 60.0
"""How long PostgreSQL may take to end a session of which the connection was lost."""
_LOOK_SECONDS = 0.2
_HOLDERS = (
    "SELECT a.pid, a.backend_start FROM pg_locks l JOIN pg_stat_activity a USING (pid) WHERE l.locktype = 'advisory'"
    " AND l.database = (SELECT oid FROM pg_database WHERE datname = current_database()) AND l.granted"
    " AND l.classid = %s AND l.objid::bigint = hashtext(%s)::bigint & 4294967295 AND l.objsubid = 2"
)


def only_one(connection: psycopg.Connection, group: str) -> None:
    """Be the only one who rebuilds a group, as long as the connection lives.

    Raises:
        RebuildRefused: somebody else does.
    """
    if not _lock(connection, group):
        raise RebuildRefused(f"group {group}: a rebuild of it is running; wait for it, or end that process")


class Alone:
    """A connection in autocommit, which is made anew when it is lost.

    Args:
        settings: name the database.
        group: that is rebuilt.
        say: told what goes on, in sentences.
    """

    def __init__(self, settings: Settings, group: str, say: Callable[[str], None]) -> None:
        self._settings = settings
        self._group = group
        self._say = say
        self._is_alone = False
        self.connection = self._connect()
        self._session = _session(self.connection)

    def close(self) -> None:
        """Let go of it."""
        self.connection.close()

    def begin(self) -> None:
        """Be the only one from now on; see `only_one`."""
        only_one(self.connection, self._group)
        self._is_alone = True

    def mend(self) -> None:
        """Connect again when the connection is lost, and be the only one again.

        While the database is away it stays lost. The server may not know for half a minute that the connection before
        is gone; its session has the lock until then, so it is ended.

        Raises:
            RebuildRefused: somebody else has begun to rebuild the group meanwhile.
        """
        if not (self.connection.closed or self.connection.broken):
            return
        try:
            connection = self._connect()
        except psycopg.OperationalError:
            return  # the next one who mends finds the old one lost
        try:
            session = _session(connection)
            if self._is_alone:
                self._take_over(connection, self._session)
        except psycopg.OperationalError:
            connection.close()
        except BaseException:
            connection.close()
            raise
        else:
            self.connection, self._session = connection, session

    def _take_over(self, connection: Connection, before: tuple[int, datetime]) -> None:
        deadline, is_told = SYSTEM.monotonic() + END_SECONDS, False
        while not _lock(connection, self._group):
            holders = connection.execute(_HOLDERS, (LOCK, self._group)).fetchall()
            if any(one != before for one in holders) or SYSTEM.monotonic() >= deadline:
                only_one(connection, self._group)
                return
            if holders and not is_told:
                self._say(f"The connection was lost; its session in the database, {before[0]}, is ended")
                is_told = True
            if holders:
                connection.execute("SELECT pg_terminate_backend(%s)", (before[0],))
            time.sleep(_LOOK_SECONDS)

    def _connect(self) -> Connection:
        return database.session(self._settings, "offsetzero rebuild")


def _session(connection: Connection) -> tuple[int, datetime]:
    """Which one it is on the server; a process id alone may be another's by and by."""
    mine = "SELECT pid, backend_start FROM pg_stat_activity WHERE pid = pg_backend_pid()"
    found: tuple[int, datetime] = connection.execute(mine).fetchall()[0]
    return found


def _lock(connection: psycopg.Connection, group: str) -> bool:
    row = connection.execute("SELECT pg_try_advisory_lock(%s, hashtext(%s))", (LOCK, group)).fetchone()
    return row is not None and bool(row[0])
