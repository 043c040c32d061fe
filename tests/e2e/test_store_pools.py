"""Pools of connections after the server has closed them all."""

import asyncio
import time
from contextlib import AsyncExitStack

import psycopg

from offsetzero.settings import Settings
from offsetzero.store.database import async_pool


def test_a_pool_of_dead_connections_serves_at_once(database_url: str) -> None:
    """Each dead one was tried before the next, after a longer pause each time: 30 s for one request after a restart."""

    async def seconds() -> float:
        async with async_pool(Settings(database_url=database_url), 8, name="tested") as pool:
            async with AsyncExitStack() as stack:
                for _ in range(8):
                    await stack.enter_async_context(pool.connection())
            with psycopg.connect(database_url, autocommit=True) as connection:
                connection.execute(
                    "SELECT pg_terminate_backend(pid, 5000) FROM pg_stat_activity"
                    " WHERE application_name = 'tested' AND datname = current_database()"
                )
            begun = time.monotonic()
            async with pool.connection() as one:
                await one.execute("SELECT 1")
            return time.monotonic() - begun

    assert asyncio.run(seconds()) < 5.0
