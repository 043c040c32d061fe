"""Ports that are stolen between look and bind, and data of other versions.

docs/machines.md has the table of what happens, what is said, and what to do.
"""

import os
import socket
import subprocess
import tempfile
from collections.abc import Iterator
from pathlib import Path

import httpx
import psycopg
import pytest
from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient, NewTopic

import machine
from offsetzero.embedded import contents, features, java, kafka, kafka_config, ports
from offsetzero.embedded.jars import JarCache
from offsetzero.embedded.kafka import Kafka
from offsetzero.embedded.postgres import Postgres
from offsetzero.embedded.worker import Process
from offsetzero.errors import ServerError
from offsetzero.settings import Settings


@pytest.fixture
def home() -> Iterator[Path]:
    """A folder that every account may pass to, unlike pytest's own."""
    with tempfile.TemporaryDirectory(prefix="oz-home-") as folder:
        Path(folder).chmod(0o755)
        yield Path(folder)


class Thief:
    """Takes each port in the moment after it was chosen, the first `count` times."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, count: int) -> None:
        self.sockets: list[socket.socket] = []
        self._left = count
        choose = ports.free

        def free(number: int = 1) -> list[int]:
            chosen = choose(number)
            if self._left > 0:
                self._left -= 1
                self.sockets.append(socket.create_server(("127.0.0.1", chosen[0])))
            return chosen

        monkeypatch.setattr(ports, "free", free)

    def close(self) -> None:
        for taken in self.sockets:
            taken.close()


@pytest.fixture
def thief(monkeypatch: pytest.MonkeyPatch) -> Iterator[Thief]:
    made = Thief(monkeypatch, 1)
    yield made
    made.close()


def test_postgres_takes_another_port_when_one_is_stolen_before_it_binds(home: Path, thief: Thief) -> None:
    with Postgres(home) as postgres, psycopg.connect(postgres.url()) as connection:
        assert connection.execute("SELECT 1").fetchone() == (1,)
        assert postgres.port != thief.sockets[0].getsockname()[1]


def test_kafka_takes_another_port_when_one_is_stolen_and_makes_unfinished_data_anew(home: Path, thief: Thief) -> None:
    (home / kafka_config.UNFINISHED).mkdir()  # a format that was killed
    (home / kafka_config.UNFINISHED / "meta.properties").write_text("version=1\n")
    with Kafka(home) as server:
        assert int(server.bootstrap_servers.rsplit(":", 1)[1]) != thief.sockets[0].getsockname()[1]
        assert not (home / kafka_config.UNFINISHED).exists()


def test_another_kafka_on_our_port_is_not_taken_for_ours(kafka_bootstrap: str) -> None:
    if not kafka_bootstrap.startswith("127.0.0.1:"):
        pytest.skip("the tests' Kafka is elsewhere")
    assert not kafka._answers(int(kafka_bootstrap.rsplit(":", 1)[1]), "another-cluster")


def test_a_process_of_ours_takes_another_port_when_its_own_is_stolen(settings: Settings, tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        process = Process(
            "relay",
            ("relay",),
            port=taken.getsockname()[1],
            port_setting="METRICS_PORT",
            path="/metrics",
            environment={
                "OFFSETZERO_DATABASE_URL": settings.database_url.get_secret_value(),
                "OFFSETZERO_KAFKA__BOOTSTRAP_SERVERS": settings.kafka.bootstrap_servers,
                "OFFSETZERO_HOME": str(tmp_path),
            },
            log=tmp_path / "relay.log",
            hold=(),
            report=machine.Steps(),
        )
        process.start()
        try:
            process.await_ready()
            assert process.port != taken.getsockname()[1]
            assert httpx.get(process.url).status_code == 200
        finally:
            process.stop()


def test_data_of_an_older_kafka_get_its_features_and_keep_their_records(home: Path) -> None:
    paths = os.pathsep.join(str(path) for path in JarCache().ensure())
    command = kafka_config.write(home, java.find(), paths, broker=1, controller=2, more={})
    older = ("--release-version", "3.9", "-t", "A" * 22)
    subprocess.run(
        [*command, "kafka.tools.StorageTool", "format", "-c", kafka_config.PROPERTIES, *older],
        cwd=home,
        check=True,
        capture_output=True,
        env=java.environment(),
    )
    with Kafka(home) as server:
        with socket.create_connection(("127.0.0.1", int(server.bootstrap_servers.rsplit(":", 1)[1]))) as connection:
            found = features.levels(connection)
        assert found.behind() == {}
        assert found.finalized["group.version"] == 1
        admin = AdminClient({"bootstrap.servers": server.bootstrap_servers})
        admin.create_topics([NewTopic("t", 1, 1)])["t"].result(60)
        producer = Producer({"bootstrap.servers": server.bootstrap_servers})
        producer.produce("t", b"first")
        assert producer.flush(20) == 0
        assert machine.first_record(server, "t") == b"first"  # by a group of KIP-848, which the older one had not


def test_data_of_a_kafka_with_zookeeper_are_told(home: Path) -> None:
    (home / "data").mkdir()
    (home / "data" / "meta.properties").write_text("version=0\nbroker.id=0\ncluster.id=abc\n")
    with pytest.raises(ServerError, match=r"not made by a Kafka that this one can follow .*version 0, not 1"):
        Kafka(home).start()


def test_tables_of_a_newer_offsetzero_are_told(settings: Settings) -> None:
    with psycopg.connect(settings.database_url.get_secret_value(), autocommit=True) as connection:
        connection.execute("UPDATE alembic_version SET version_num = '9999_of_the_future'")
    with pytest.raises(
        ServerError, match=r"tables are of a newer offsetzero .*9999_of_the_future.*Nothing was changed"
    ):
        contents.migrate(settings)
