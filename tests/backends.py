"""Where the tests' Kafka and PostgreSQL run: on this machine as packages, in containers, or somewhere already."""

import os
from enum import StrEnum
from pathlib import Path
from typing import Protocol

from broker_config import BROKER, DATABASE

EXTERNAL = {"kafka": "OZ_TEST_KAFKA", "postgres": "OZ_TEST_POSTGRES_URL"}
"""The variables that name external servers: `host:port`, and the URL of a database as a superuser."""


class Kind(StrEnum):
    """The values of `--servers`."""

    EMBEDDED = "embedded"
    CONTAINERS = "containers"
    EXTERNAL = "external"


class Unavailable(Exception):
    """The servers that were asked for cannot be had."""


class Backend(Protocol):
    """Starts each server once. `start` may be called from two threads at once, with different names."""

    def start(self, name: str) -> str:
        """Start `kafka` or `postgres`; its bootstrap address, or the URL of its database `postgres`."""

    def stop(self) -> None:
        """Stop what was started, and remove its data."""


class Embedded:
    """The servers of `offsetzero up`."""

    def __init__(self, folder: Path) -> None:
        from offsetzero.embedded.kafka import Kafka
        from offsetzero.embedded.postgres import Postgres

        self._kafka = Kafka(folder / "kafka", config=BROKER)
        self._postgres = Postgres(folder / "postgres", config=DATABASE)

    def start(self, name: str) -> str:
        if name == "kafka":
            return self._kafka.start().bootstrap_servers
        return self._postgres.start().url("postgres")

    def stop(self) -> None:
        for server in (self._kafka, self._postgres):
            server.ask_to_stop()
        for server in (self._kafka, self._postgres):
            server.stop()


class External:
    """Servers that somebody else starts and stops."""

    def start(self, name: str) -> str:
        return os.environ[EXTERNAL[name]]

    def stop(self) -> None:
        """They go on."""


def make(kind: Kind, folder: Path) -> Backend:
    """The servers of a kind, not started.

    Args:
        kind: which ones.
        folder: for the data of embedded ones.
    """
    if kind is Kind.EMBEDDED:
        return Embedded(folder)
    if kind is Kind.EXTERNAL:
        return External()
    from containers import Containers

    return Containers()


def choose(asked: str | None) -> tuple[Kind, str]:
    """Which servers a run uses: those asked for, else containers when an engine answers that has or reaches their
    images, else embedded ones.

    Returns:
        The kind, and a few words about it for people.

    Raises:
        Unavailable: those asked for cannot be had.
    """
    if asked == Kind.EMBEDDED:
        return Kind.EMBEDDED, "asked for"
    if asked == Kind.EXTERNAL:
        missing = [name for name in EXTERNAL.values() if not os.environ.get(name)]
        if missing:
            raise Unavailable(f"--servers=external needs {' and '.join(missing)} in the environment")
        return Kind.EXTERNAL, os.environ[EXTERNAL["kafka"]]
    found, reason = _containers()
    if found:
        return Kind.CONTAINERS, reason
    if asked == Kind.CONTAINERS:
        raise Unavailable(f"--servers=containers: {reason}")
    return Kind.EMBEDDED, reason


def _containers() -> tuple[bool, str]:
    try:
        from docker.errors import DockerException

        import containers
        import engine
    except ImportError as error:
        return False, f"{error.name} is not installed"
    try:
        answers = engine.name()
        if not engine.obtainable(containers.IMAGES):
            return False, f"{answers} has no {' and '.join(containers.IMAGES)}, and cannot pull them"
    except (DockerException, OSError) as error:
        return False, f"no Docker engine answers ({type(error).__name__})"
    return True, answers
