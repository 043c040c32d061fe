"""The broker and the database that the contestants meet: the project's embedded ones, or given ones."""

import contextlib
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from urllib.parse import urlsplit

import psycopg

from offsetzero.embedded.kafka import Kafka
from offsetzero.embedded.postgres import Postgres, remove_data
from offsetzero.store.migrate import upgrade

DATABASE = "offsetzero_bench"


class Servers:
    """Started when they are first asked for.

    Args:
        folder: for their data; removed at the end.
        stack: ends them.
        bootstrap: a broker that runs already.
        database_url: of a PostgreSQL that runs already, as a role that may make databases.
    """

    def __init__(self, folder: Path, stack: ExitStack, bootstrap: str = "", database_url: str = "") -> None:
        self._folder = folder
        self._stack = stack
        self._bootstrap = bootstrap
        self._server_url = database_url
        self._database_url = ""

    @property
    def bootstrap(self) -> str:
        """`host:port` of the broker."""
        if not self._bootstrap:
            self._bootstrap = self._stack.enter_context(Kafka(self._folder / "kafka")).bootstrap_servers
        return self._bootstrap

    @property
    def database_url(self) -> str:
        """URL of a migrated database of the benchmark's own, empty at the first use."""
        if not self._database_url:
            if not self._server_url:
                folder = self._folder / "postgres"
                self._stack.callback(remove_data, folder)  # as root its data are elsewhere
                self._server_url = self._stack.enter_context(Postgres(folder)).url("postgres")
            with psycopg.connect(self._server_url, autocommit=True) as connection:
                connection.execute(f"DROP DATABASE IF EXISTS {DATABASE} WITH (FORCE)")
                connection.execute(f"CREATE DATABASE {DATABASE}")
            url = urlsplit(self._server_url)._replace(path=f"/{DATABASE}").geturl()
            upgrade(url)
            self._database_url = url
        return self._database_url


@contextlib.contextmanager
def servers(bootstrap: str = "", database_url: str = "", parent: Path | None = None) -> Iterator[Servers]:
    """The servers of one run.

    Args:
        bootstrap: see `Servers`.
        database_url: see `Servers`.
        parent: the folder for the folder of their data.
    """
    folder = Path(tempfile.mkdtemp(prefix="offsetzero-bench-", dir=parent))
    folder.chmod(0o711)  # PostgreSQL's account must pass
    try:
        with ExitStack() as stack:
            yield Servers(folder, stack, bootstrap, database_url)
    finally:
        shutil.rmtree(folder, ignore_errors=True)
