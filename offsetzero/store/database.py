"""Pools of connections to PostgreSQL."""

import select
from collections.abc import AsyncIterator, Generator
from contextlib import asynccontextmanager, contextmanager
from typing import Any, TypeAlias
from weakref import WeakKeyDictionary

import psycopg
from psycopg_pool import AsyncConnectionPool, ConnectionPool, PoolTimeout

from offsetzero.clock import SYSTEM
from offsetzero.settings import Settings
from offsetzero.store.script import Script

Connection: TypeAlias = psycopg.Connection[tuple[Any, ...]]
AsyncConnection: TypeAlias = psycopg.AsyncConnection[tuple[Any, ...]]
AsyncPool: TypeAlias = AsyncConnectionPool[AsyncConnection]

_TRIED_SECONDS = 1.0
IN_SCHEMA = "SELECT set_config('search_path', quote_ident(%s) || ', ' || current_setting('search_path'), %s)"
"""Has tables found in a schema first; whether only until the transaction ends."""
_SESSION: dict[str, Any] = {
    # The server looks after its side, too: a machine that vanished in a transaction holds the locks of what it claimed.
    "options": "-c TimeZone=UTC -c tcp_keepalives_idle=10 -c tcp_keepalives_interval=5 -c tcp_keepalives_count=3",
    "connect_timeout": 10,
    # A peer that died without a word is noticed in half a minute, not in the two hours of the kernel.
    "keepalives_idle": 10,
    "keepalives_interval": 5,
    "keepalives_count": 3,
    "tcp_user_timeout": 30_000,
}


class Pool(ConnectionPool[Connection]):
    """Connections for threads; see `pool`."""

    url = ""

    def ask(self, seconds: float) -> None:
        """Have the database answer a new connection within so many seconds.

        An open one would not do: when the server stands still but its machine does not, a statement waits for ever, for
        TCP is acknowledged (neither keepalives nor `tcp_user_timeout` end that).

        Raises:
            psycopg.OperationalError: it does not.
        """
        psycopg.connect(self.url, connect_timeout=max(2, int(seconds))).close()  # 2 is libpq's least


def pool(
    settings: Settings, size: int, *, name: str = "offsetzero", timeout: float = 30.0, schema: str | None = None
) -> Pool:
    """A pool for threads, already opening its first connection in the background.

    Args:
        size: the most connections it holds.
        name: shown by PostgreSQL as the application and in the pool's log lines.
        timeout: seconds that a caller waits for a connection before `psycopg_pool.PoolTimeout`.
        schema: where tables are found first; by default where the role finds them.
    """

    def configure(connection: Connection) -> None:
        connection.execute(IN_SCHEMA, (schema, False))
        connection.commit()

    url = settings.database_url.get_secret_value()
    made = Pool(
        url,
        kwargs={**_SESSION, "application_name": name},
        connection_class=psycopg.Connection,
        min_size=1,
        max_size=size,
        name=name,
        timeout=timeout,
        configure=configure if schema is not None else None,
        open=True,
    )
    made.url = url
    return made


def _has_news(connection: AsyncConnection) -> bool:
    """Whether the server has said something that nobody asked for, or has closed the connection."""
    poll = select.poll()
    poll.register(connection.fileno(), select.POLLIN)
    return bool(poll.poll(0))


def session(settings: Settings, name: str) -> Connection:
    """One connection in autocommit, for a command; a peer that vanished is noticed in half a minute.

    Args:
        name: shown by PostgreSQL as the application.

    Raises:
        psycopg.OperationalError: the database cannot be reached.
    """
    url = settings.database_url.get_secret_value()
    return psycopg.connect(url, autocommit=True, application_name=name, **_SESSION)


def limit(seconds: float) -> Script[None]:
    """Have each statement of the transaction take no longer than that.

    Raises:
        psycopg.errors.QueryCanceled: a later one does.
    """
    yield "SELECT set_config('statement_timeout', %s, true)", (f"{max(1, int(seconds * 1000))}ms",)


@contextmanager
def committing(pool: Pool) -> Generator[Connection]:
    """A connection on which each statement commits by itself: in one round trip, where a transaction takes three."""
    with pool.connection() as connection:
        connection.autocommit = True
        try:
            yield connection
        finally:
            if not connection.closed:  # else the pool makes another
                connection.autocommit = False


@asynccontextmanager
async def acommitting(pool: AsyncPool) -> AsyncIterator[AsyncConnection]:
    """`committing` for an async pool."""
    async with pool.connection() as connection:
        await connection.set_autocommit(True)
        try:
            yield connection
        finally:
            if not connection.closed:
                await connection.set_autocommit(False)


def async_pool(
    settings: Settings,
    size: int,
    *,
    name: str = "offsetzero",
    timeout: float = 10.0,
    schema: str | None = None,
    waiting: int = 0,
    patience: float = 0.0,
) -> AsyncPool:
    """A pool for one asyncio loop; not open yet: use it as `async with async_pool(…) as pool`.

    It tries a connection before it hands it out, so that a request after a restart of PostgreSQL does
    not get a dead one. One that was tried within a second, and of which nothing has come since, is not tried again:
    that takes three round trips, and a server that ends says so on the connection.

    Args:
        size, name, timeout, schema: as those of `pool`.
        waiting: how many may wait for a connection; one more has `psycopg_pool.TooManyRequests` at once. 0: any number.
        patience: seconds that a caller waits while others are given connections, if longer: then the database is there.
    """

    tried: WeakKeyDictionary[AsyncConnection, float] = WeakKeyDictionary()

    async def check(connection: AsyncConnection) -> None:
        now = SYSTEM.monotonic()
        if now - tried.get(connection, -_TRIED_SECONDS) < _TRIED_SECONDS and not _has_news(connection):
            return
        try:
            await AsyncConnectionPool.check_connection(connection)
            tried[connection] = now
        except Exception:
            # The others are of the same time, and the pool pauses ever longer between two that are dead.
            await made.drain()
            raise

    async def configure(connection: AsyncConnection) -> None:
        await connection.execute(IN_SCHEMA, (schema, False))
        await connection.commit()

    made = _PatientPool(
        settings.database_url.get_secret_value(),
        kwargs={**_SESSION, "application_name": name},
        connection_class=psycopg.AsyncConnection,
        check=check,
        min_size=1,
        max_size=size,
        name=name,
        timeout=timeout,
        max_waiting=waiting,
        configure=configure if schema is not None else None,
        open=False,
    )
    made.patience = patience
    return made


class _PatientPool(AsyncConnectionPool[AsyncConnection]):
    """Waits longer in a queue that moves than for a database that does not answer."""

    patience = 0.0
    _given = float("-inf")

    async def getconn(self, timeout: float | None = None) -> AsyncConnection:
        """As the pool's; a caller that names no time is patient."""
        until = SYSTEM.monotonic() + self.patience
        while True:
            try:
                connection = await super().getconn(timeout)
            except PoolTimeout:
                now = SYSTEM.monotonic()
                if timeout is None and now < until and now - self._given < self.timeout:
                    continue
                raise
            self._given = SYSTEM.monotonic()
            return connection
