"""Pools of connections whose server has closed them all, or stands still."""

import asyncio
import socket
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import AsyncExitStack

import psycopg
import pytest
from psycopg_pool import PoolTimeout

from offsetzero.consumers.group import ConsumerGroup
from offsetzero.consumers.working import database
from offsetzero.consumers.working.database import DatabaseEffects
from offsetzero.settings import Settings
from offsetzero.store.database import async_pool, pool
from support import PATIENCE, within


@pytest.mark.timed
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

    within(5.0, asyncio.run(seconds()), "a request")


@pytest.mark.parametrize(("patience", "given"), [(60.0, 12), (0.0, None)])
def test_a_queue_that_moves_is_worth_waiting_in(database_url: str, patience: float, given: int | None) -> None:
    """200 uploads at once were too many for ten connections on a busy machine: some were answered 503."""

    async def take_turns() -> int:
        settings = Settings(database_url=database_url)
        async with async_pool(settings, 1, timeout=0.5, patience=patience) as pool:

            async def turn() -> int:
                async with pool.connection():
                    await asyncio.sleep(0.2)
                return 1

            return sum(await asyncio.gather(*(turn() for _ in range(12))))

    if given is None:
        with pytest.raises(PoolTimeout):
            asyncio.run(take_turns())
    else:
        assert asyncio.run(take_turns()) == given


def test_a_queue_that_stands_is_left(database_url: str) -> None:
    async def wait_behind() -> None:
        settings = Settings(database_url=database_url)
        async with async_pool(settings, 1, timeout=0.5, patience=60.0) as pool, pool.connection():
            begun = asyncio.get_running_loop().time()
            with pytest.raises(PoolTimeout):
                await pool.getconn()
            assert asyncio.get_running_loop().time() - begun < 30

    asyncio.run(wait_behind())


@pytest.mark.timed
def test_a_database_that_stands_still_is_found_out_within_seconds(
    database_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As a frozen server does, it takes connections and says nothing; one that was open before shows nothing of it."""
    settings, lost = Settings(database_url=database_url), psycopg.OperationalError("the connection is lost")
    monkeypatch.setattr(database, "PROBE_SECONDS", 2.0)
    with (
        socket.create_server(("127.0.0.1", 0)) as silent,
        pool(settings, 1) as connections,
        ThreadPoolExecutor() as own,
    ):
        effects = DatabaseEffects(ConsumerGroup("audit"), settings, connections)
        assert not effects.is_away(lost, None), "it is well"
        connections.url = f"postgresql://somebody@127.0.0.1:{silent.getsockname()[1]}/nothing"
        with connections.connection() as open_before:
            assert open_before.execute("SELECT 1").fetchone() == (1,)
        asked = own.submit(effects.is_away, lost, None)
        try:
            begun = time.monotonic()
            assert asked.result(PATIENCE), "it is away"
            within(2.0 + 4.0, time.monotonic() - begun, "that it is away was found out")
        finally:
            silent.close()  # who still waits for an answer gets an error
