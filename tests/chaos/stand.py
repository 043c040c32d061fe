"""Kafka and PostgreSQL of one test's own, which it may kill."""

from pathlib import Path
from types import TracebackType
from typing import Self

import psycopg
from chaos.plan import SESSION_SECONDS, SIZE, SMALL, What

from broker_config import BROKER
from offsetzero.embedded import ports
from offsetzero.embedded.kafka import Kafka
from offsetzero.embedded.postgres import Postgres
from offsetzero.errors import ServerError
from offsetzero.settings import Settings
from offsetzero.store.migrate import upgrade
from offsetzero.topics import catalogue, cluster
from support import wait_until

# Here the server is killed, and what it has acknowledged must be there: only a crash of the machine may lose it.
DATABASE = {"max_connections": "300", "fsync": "off"}


class Stand:
    """Both servers, on ports that stay.

    Args:
        folder: for their data; PostgreSQL's account must reach it.
        protocol: of the group.
    """

    def __init__(self, folder: Path, protocol: str) -> None:
        self._kafka = Kafka(folder / "kafka", port=ports.free()[0], config=BROKER)
        self._postgres = Postgres(folder / "postgres", port=ports.free()[0], config=DATABASE)
        self._folder = folder
        self._protocol = protocol

    def __enter__(self) -> Self:
        self._kafka.start()
        self._postgres.start()
        url = self._postgres.url()
        upgrade(url)
        self.settings = Settings(
            home=self._folder / "home",
            database_url=url,
            kafka={
                "bootstrap_servers": self._kafka.bootstrap_servers,
                "group_protocol": self._protocol,
                "options": _options(self._protocol),
            },
        )
        cluster.ensure(self.settings, [topic.resolved(self.settings) for topic in catalogue.TOPICS])
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for server in (self._kafka, self._postgres):
            server.ask_to_stop()
        for server in (self._kafka, self._postgres):
            server.stop()

    def connect(self) -> psycopg.Connection:
        """To the group's database; each statement commits by itself."""
        return psycopg.connect(self.settings.database_url.get_secret_value(), autocommit=True)

    def kill(self, what: What) -> None:
        """SIGKILL to the broker, or to the postmaster, whose children end when they see that."""
        (self._kafka if what is What.BROKER else self._postgres).kill()

    def start(self, what: What) -> None:
        """Start what was killed, from the same data."""
        if what is What.BROKER:
            self._kafka.start()
        else:
            wait_until(self._database_starts, 60, what="PostgreSQL after a kill")

    def _database_starts(self) -> bool:
        try:
            self._postgres.start()
        except ServerError:  # children of the killed one still have its memory
            return False
        return True


def _options(protocol: str) -> dict[str, str]:
    # By default a client looks only every ten seconds whether a broker is back.
    quick = {"reconnect.backoff.max.ms": "500"} if SIZE is SMALL else {}
    # The other protocol's session is the broker's to say.
    return {**quick, "session.timeout.ms": f"{SESSION_SECONDS * 1000:.0f}"} if protocol == "classic" else quick
