"""`offsetzero up` in a folder of its own, for the time of a measurement; and keys of further tenants."""

import contextlib
import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import psycopg

from offsetzero.embedded.postgres import remove_data
from offsetzero.store.tenants import create_key


@dataclass(frozen=True)
class Running:
    """Everything on this machine: the API, the relay, the groups, Kafka and PostgreSQL."""

    api: str
    database: str
    kafka: str
    home: Path
    pid: int

    @property
    def port(self) -> int:
        """Of the API, on loopback."""
        return int(self.api.rpartition(":")[2])

    def key(self, tenant: str) -> str:
        """A new key of a tenant."""
        with psycopg.connect(self.database) as connection:
            return create_key(connection, tenant)

    def rows(self, query: str, *parameters: Any) -> list[tuple[Any, ...]]:
        """What the database says."""
        with psycopg.connect(self.database, autocommit=True) as connection:
            return connection.execute(query.encode(), parameters).fetchall()


@contextlib.contextmanager
def running(**settings: str) -> Iterator[Running]:
    """Start it with these settings; all of it is gone at the end."""
    home = Path(tempfile.mkdtemp(prefix="offsetzero-intake-"))
    home.chmod(0o711)  # PostgreSQL's account must pass
    environment = {name: value for name, value in os.environ.items() if not name.startswith("OFFSETZERO_")}
    command = [sys.executable, "-m", "offsetzero", "up", "--json", "--port", "0", "--home", str(home)]
    child = subprocess.Popen(
        command,
        env={**environment, **settings},
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
    )
    try:
        assert child.stdout is not None
        line = child.stdout.readline()
        if not line:
            raise SystemExit(f"offsetzero up ended with {child.wait()}; see {home / 'logs'}")
        found = json.loads(line)
        yield Running(found["api"], found["database"], found["kafka"], home, child.pid)
    finally:
        if child.poll() is None:
            child.send_signal(signal.SIGTERM)
        child.wait()
        remove_data(home / "postgres")  # as root its data are elsewhere
        shutil.rmtree(home, ignore_errors=True)
