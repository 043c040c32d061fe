"""Kafka and PostgreSQL in containers, by testcontainers, for one run of the tests.

A container lives as long as a connection to its standard input is open: when the process that holds it ends, by
`kill -9` too, the container stops and is removed. So nothing else has to look after it (testcontainers' own
reaper, Ryuk, is one more image and wants the engine's socket inside a container; it is switched off).
"""

import contextlib
import re
import secrets
import threading
from typing import Any

import docker.errors
from testcontainers.community.postgres import PostgresContainer
from testcontainers.core.config import testcontainers_config
from testcontainers.core.container import DockerContainer
from testcontainers.core.docker_client import DockerClient
from testcontainers.core.wait_strategies import LogMessageWaitStrategy

import engine
from broker_config import BROKER, DATABASE

KAFKA_IMAGE = "apache/kafka:4.4.0"
POSTGRES_IMAGE = "pgvector/pgvector:pg18"
IMAGES = (KAFKA_IMAGE, POSTGRES_IMAGE)
LABEL = "offsetzero.tests"
_START_WITHIN = 60.0  # seconds
_SCRIPT = "/tmp/start.sh"  # noqa: S108  # in the container, where nobody else is
# Run the arguments as process 1, and end them with a signal ($1) when standard input ends.
_TIED = (
    'signal=$1; shift; exec 3<&0; { cat <&3 >/dev/null; while kill -"$signal" 1; do sleep 1; done; } & '
    'exec 3<&-; exec "$@" </dev/null'
)
testcontainers_config.ryuk_disabled = True


class _TiedClient(DockerClient):
    """Holds on to the standard input of the containers that it starts."""

    def start(self, container: Any) -> None:
        self.held = container.attach_socket(params={"stdin": 1, "stream": 1})
        super().start(container)

    def let_go(self) -> None:
        """Let the container end."""
        with contextlib.suppress(AttributeError):
            self.held.close()


class _Tied(DockerContainer):
    """A container that ends with this process; `tie` is to be called before it starts."""

    def tie(self, signal: str, command: list[str]) -> None:
        """Say what it runs, and which signal ends that at once and in order."""
        self._tied = _TiedClient()
        self._lines: list[str] = []
        self._kwargs |= {"stdin_open": True, "auto_remove": True, "labels": {LABEL: "1"}}
        self._kwargs |= {"entrypoint": ["sh", "-c", _TIED, "tied", signal, *command]}

    def get_docker_client(self) -> DockerClient:
        return self._tied

    def publish(self, port: int) -> None:
        """Open a port to this machine alone, where the engine is on it."""
        self.with_exposed_ports(port)
        if engine.is_here(self._tied):
            self.ports[str(port)] = (engine.LOOPBACK, None)  # docker-py takes the address, too

    def get_container_host_ip(self) -> str:
        return engine.LOOPBACK if engine.is_here(self._tied) else super().get_container_host_ip()

    def get_exposed_port(self, port: int) -> int:
        if engine.is_here(self._tied):
            return int(self._tied.port(self.get_container_id(), port))
        return super().get_exposed_port(port)

    def start(self) -> "_Tied":
        """Start it and wait until it serves; a failure has its last lines."""
        try:
            super().start()
            self.await_ready()
        except BaseException as error:
            error.add_note("".join(self._lines[-30:]))
            self.stop()
            raise
        return self

    def await_ready(self) -> None:
        """Wait for what `start` has not waited for."""

    def follow(self) -> None:
        """Keep its last lines: they are gone with the container."""

        def read() -> None:
            with contextlib.suppress(docker.errors.APIError, OSError, ValueError):
                for piece in self.get_wrapped_container().logs(stream=True, follow=True):
                    self._lines.append(piece.decode(errors="replace"))
                    del self._lines[:-200]

        threading.Thread(target=read, daemon=True).start()

    def stop(self, force: bool = True, delete_volume: bool = True) -> None:
        self._tied.let_go()
        with contextlib.suppress(docker.errors.APIError):  # it is being removed already
            super().stop(force, delete_volume)


class Kafka(_Tied):
    """One KRaft node. What it advertises is known when its port is: it then gets its start script."""

    def __init__(self) -> None:
        super().__init__(KAFKA_IMAGE)
        wait = f"n=0; until [ -f {_SCRIPT} ]; do n=$((n+1)); [ $n -lt 600 ] || exit 1; sleep 0.1; done"
        self.tie("TERM", ["sh", "-c", f"{wait}; . {_SCRIPT}"])
        self.publish(9092)
        config = {
            **BROKER,
            "process.roles": "broker,controller",
            "node.id": "1",
            "controller.listener.names": "CONTROLLER",
            "controller.quorum.voters": "1@localhost:9094",
            "inter.broker.listener.name": "INTERNAL",
            "listeners": "CLIENTS://:9092,INTERNAL://localhost:9093,CONTROLLER://localhost:9094",
            "listener.security.protocol.map": "CLIENTS:PLAINTEXT,INTERNAL:PLAINTEXT,CONTROLLER:PLAINTEXT",
        }
        for name, value in config.items():
            self.with_env("KAFKA_" + name.replace(".", "_").upper(), value)
        self.with_env("KAFKA_HEAP_OPTS", "-Xmx512m -Xms128m")
        self.with_env("KAFKA_JVM_PERFORMANCE_OPTS", "-XX:+UseSerialGC -XX:TieredStopAtLevel=1 -XX:-UsePerfData")

    @property
    def address(self) -> str:
        """`host:port` for clients."""
        return f"{self.get_container_host_ip()}:{self.get_exposed_port(9092)}"

    def await_ready(self) -> None:
        self.follow()
        script = (
            f"export KAFKA_ADVERTISED_LISTENERS=CLIENTS://{self.address},INTERNAL://localhost:9093\n"
            "exec /etc/kafka/docker/run\n"
        )
        self.copy_into_container(script.encode(), _SCRIPT)
        started = LogMessageWaitStrategy(re.compile("Kafka Server started"))
        started.with_startup_timeout(int(_START_WITHIN)).wait_until_ready(self)


class Postgres(_Tied, PostgresContainer):
    """PostgreSQL whose data are thrown away."""

    def __init__(self) -> None:
        PostgresContainer.__init__(
            self,
            POSTGRES_IMAGE,
            username="offsetzero",
            password=secrets.token_hex(16),
            dbname="postgres",
            driver=None,
        )
        options = [part for name, value in DATABASE.items() for part in ("-c", f"{name}={value}")]
        self.tie("INT", ["docker-entrypoint.sh", "postgres", *options])
        self.publish(5432)

    def _connect(self) -> None:
        self.follow()
        super()._connect()


class Containers:
    """Both servers, in containers."""

    def __init__(self) -> None:
        self._started: list[_Tied] = []

    def start(self, name: str) -> str:
        """Start `kafka` or `postgres`; where it is."""
        server = Kafka() if name == "kafka" else Postgres()
        server.start()
        self._started.append(server)
        return server.address if isinstance(server, Kafka) else server.get_connection_url(driver=None)

    def stop(self) -> None:
        """Stop and remove what was started."""
        for server in self._started:
            server.stop()
