"""The API as a process serves it: uvicorn on a free port, spoken to over HTTP."""

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx
import psycopg

from offsetzero.api.app import create_app
from offsetzero.api.server import Server
from offsetzero.cli import serve
from offsetzero.settings import Settings
from offsetzero.store.tenants import create_key
from support import wait_until


@dataclass
class Api:
    """A running API; `client` speaks for the tenant `demo`, `stranger` for another."""

    settings: Settings
    client: httpx.Client
    stranger: httpx.Client
    anonymous: httpx.Client

    def rows(self, query: str, *parameters: Any) -> list[tuple[Any, ...]]:
        """What the database says."""
        with psycopg.connect(self.settings.database_url.get_secret_value()) as connection:
            return connection.execute(query.encode(), parameters).fetchall()

    def change(self, statement: str, *parameters: Any) -> None:
        """Change the database behind the API's back."""
        with psycopg.connect(self.settings.database_url.get_secret_value()) as connection:
            connection.execute(statement.encode(), parameters)

    def objects(self) -> list[Path]:
        """The stored objects."""
        return [path for path in (self.settings.home / "objects").rglob("*") if path.is_file()]

    def nothing_happened(self) -> bool:
        """Nothing is stored and nothing is published."""
        tables = ("documents", "runs", "run_steps", "outbox")
        return self.objects() == [] and not any(self.rows(f"SELECT 1 FROM {table} LIMIT 1") for table in tables)


@contextmanager
def serving(settings: Settings) -> Iterator[str]:
    """Serve an API in a thread; gives its URL."""
    server, listener = Server(create_app(settings)), serve.listen("127.0.0.1", 0)
    thread = threading.Thread(target=server.run, args=([listener],), name="api")
    thread.start()
    try:
        wait_until(lambda: server.started or not thread.is_alive(), what="the API listens")
        yield f"http://127.0.0.1:{listener.getsockname()[1]}"
    finally:
        server.should_exit = True
        thread.join(60)


@contextmanager
def running(settings: Settings) -> Iterator[Api]:
    """Serve an API with keys of two tenants."""
    with psycopg.connect(settings.database_url.get_secret_value()) as connection:
        keys = [create_key(connection, tenant) for tenant in ("demo", "other")]
    with serving(settings) as url:
        clients = [httpx.Client(base_url=url, headers={"Authorization": f"Bearer {key}"}) for key in keys]
        anonymous = httpx.Client(base_url=url)
        with clients[0], clients[1], anonymous:
            yield Api(settings, clients[0], clients[1], anonymous)
