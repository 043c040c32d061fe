"""One Apache Kafka node as a child JVM: KRaft, no ZooKeeper, on loopback only."""

import contextlib
import json
import os
import subprocess
import threading
import uuid
from base64 import urlsafe_b64encode
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from offsetzero.embedded import java, ports
from offsetzero.embedded.jars import JarCache, Progress
from offsetzero.embedded.process import Child, tail, trim_log, wait_for
from offsetzero.errors import ServerError

_JVM = (
    "-Xmx512m",
    "-Xms128m",
    "-XX:+UseSerialGC",
    "-XX:TieredStopAtLevel=1",
    "-XX:+ExitOnOutOfMemoryError",
    "-XX:-UsePerfData",
    "-Djava.awt.headless=true",
)
_CONFIG = {
    "process.roles": "broker,controller",
    "node.id": "1",
    "controller.listener.names": "CONTROLLER",
    "inter.broker.listener.name": "PLAINTEXT",
    "listener.security.protocol.map": "CONTROLLER:PLAINTEXT,PLAINTEXT:PLAINTEXT",
    "auto.create.topics.enable": "false",  # topics are declared (`offsetzero topics apply`)
    "num.partitions": "1",
    # one node: nothing to replicate to
    "default.replication.factor": "1",
    "min.insync.replicas": "1",
    "offsets.topic.replication.factor": "1",
    "offsets.topic.num.partitions": "8",
    "transaction.state.log.replication.factor": "1",
    "transaction.state.log.min.isr": "1",
    "transaction.state.log.num.partitions": "8",
    "share.coordinator.state.topic.replication.factor": "1",
    "share.coordinator.state.topic.min.isr": "1",
    "share.coordinator.state.topic.num.partitions": "1",
    # one machine: a group may form at once, and a member that was killed is missed after seconds
    "group.initial.rebalance.delay.ms": "0",
    "group.min.session.timeout.ms": "2000",
    "group.consumer.min.session.timeout.ms": "2000",
    "group.consumer.session.timeout.ms": "10000",
    "group.consumer.min.heartbeat.interval.ms": "200",
    "group.consumer.heartbeat.interval.ms": "1000",
    # a node that was killed may register again after this time, milliseconds
    "broker.session.timeout.ms": "6000",
    "broker.heartbeat.interval.ms": "1000",
    "log.cleaner.dedupe.buffer.size": str(16 * 1024 * 1024),
}
_LOG4J = """\
status = error
appender.file.type = RollingFile
appender.file.name = file
appender.file.fileName = ${sys:offsetzero.log}
appender.file.filePattern = ${sys:offsetzero.log}.%i
appender.file.layout.type = PatternLayout
appender.file.layout.pattern = %d{ISO8601} %p %m (%c)%n%throwable
appender.file.policies.type = Policies
appender.file.policies.size.type = SizeBasedTriggeringPolicy
appender.file.policies.size.size = 10MB
appender.file.strategy.type = DefaultRolloverStrategy
appender.file.strategy.max = 2
rootLogger.level = info
rootLogger.appenderRef.file.ref = file
"""
_PORT_RACES = 3  # a free port may be taken between our look and Kafka's bind


class Kafka:
    """A broker (and its controller) whose data live in `folder`.

    Args:
        folder: for data, configuration and logs; made when missing.
        port: the broker's port; by default the one of the last run when it is free, else a free one.
        config: broker properties that win over the defaults.
        jars: where the jars come from.
        hold: descriptors (of a lock on the data) that stay open until the JVM is gone.
    """

    def __init__(
        self,
        folder: Path,
        *,
        port: int | None = None,
        config: dict[str, str] | None = None,
        jars: JarCache | None = None,
        hold: Sequence[int] = (),
    ) -> None:
        self.folder = folder.absolute()
        self.log = self.folder / "server.log"
        self.bootstrap_servers = ""
        self._port = port
        self._config = config or {}
        self._jars = jars or JarCache()
        self._hold = hold
        self._child: Child | None = None
        self._stopping = threading.Event()

    def start(self, progress: Progress | None = None) -> "Kafka":
        """Fetch the jars if need be, start the broker, and return when it answers.

        Args:
            progress: told how many bytes of jars have arrived.

        Raises:
            ServerError: no Java, jars that cannot be fetched or were changed, a taken port, or a broker that ends.
        """
        if self._port is not None:
            ports.require(self._port, "Kafka", "choose another one")
        java_path = java.find()
        class_path = os.pathsep.join(str(path) for path in self._jars.ensure(progress))
        self.folder.mkdir(parents=True, exist_ok=True, mode=0o700)  # the log holds what people upload
        (self.folder / "log4j2.properties").write_text(_LOG4J)
        for race in range(_PORT_RACES):
            try:
                self._start_once(java_path, class_path)
                return self
            except _PortTaken:
                if self._port is not None or race == _PORT_RACES - 1:
                    raise
                self._remember({})
            except BaseException:
                self.stop()
                raise
        return self

    def __enter__(self) -> "Kafka":
        return self.start() if self._child is None else self

    def __exit__(self, *_exc: object) -> None:
        self.stop()

    @property
    def pid(self) -> int:
        """Process id of the JVM."""
        return self._running().pid

    def poll(self) -> int | None:
        """None while the broker runs, else its exit status."""
        return self._running().poll()

    def ask_to_stop(self) -> None:
        """Begin to stop, without waiting; a start that goes on in another thread ends with an error."""
        self._stopping.set()
        if self._child is not None:
            self._child.ask_to_stop()

    def stop(self) -> None:
        """Stop the broker in an orderly way and wait for its end."""
        self._stopping.set()
        if self._child is not None:
            self._child.stop()

    def kill(self) -> None:
        """End the broker at once, as a crash would."""
        self._running().kill()

    def _running(self) -> Child:
        if self._child is None:
            raise ServerError(f"Kafka in {self.folder} was not started")
        return self._child

    def _start_once(self, java_path: Path, class_path: str) -> None:
        broker, controller = self._choose_ports()
        properties = self.folder / "server.properties"
        data = self.folder / "data"
        config = {
            **_CONFIG,
            "listeners": f"PLAINTEXT://{ports.HOST}:{broker},CONTROLLER://{ports.HOST}:{controller}",
            "advertised.listeners": f"PLAINTEXT://{ports.HOST}:{broker}",
            # the voter is named here, not in the metadata log, so that its port may change with each start
            "controller.quorum.voters": f"1@{ports.HOST}:{controller}",
            "log.dirs": _escape(str(data)),
            **self._config,
        }
        properties.write_text("".join(f"{name}={value}\n" for name, value in config.items()))
        options = [
            *_JVM,
            f"-Dlog4j2.configurationFile={self.folder / 'log4j2.properties'}",
            f"-Doffsetzero.log={self.log}",
            "-cp",
            class_path,
        ]
        arguments = self.folder / "jvm.args"  # a file, so that `ps` shows a line one can read
        arguments.write_text("".join(f'"{_escape(option)}"\n' for option in options))
        command = [str(java_path), f"@{arguments}"]
        environment = {name: value for name, value in os.environ.items() if name != "JAVA_TOOL_OPTIONS"}
        self._format(command, properties, data, environment)
        if self._stopping.is_set():
            raise ServerError("Kafka was stopped while it started")
        console = self.folder / "console.log"
        trim_log(console)
        log_start = self.log.stat().st_size if self.log.exists() else 0
        child = Child(
            "Kafka",
            [*command, "kafka.Kafka", str(properties)],
            log=console,
            env=environment,
            cwd=self.folder,
            hold=self._hold,
        )
        self._child = child
        if self._stopping.is_set():
            child.ask_to_stop()
        self.bootstrap_servers = f"{ports.HOST}:{broker}"
        try:
            wait_for(child, lambda: _answers(broker, self.bootstrap_servers), timeout=90, what="Kafka")
        except ServerError as error:
            child.kill()
            said = (tail(self.log, 200, start=log_start) + "\n" + child.tail(200)).strip()
            if "Address already in use" in said:
                raise _PortTaken(f"Kafka: port {broker} or {controller} was taken while it started") from error
            raise ServerError(f"{error}; it said (in {self.log}):\n{_last_lines(said)}") from error
        self._remember({"broker": broker, "controller": controller})

    def _format(self, command: list[str], properties: Path, data: Path, environment: dict[str, str]) -> None:
        if (data / "meta.properties").exists():
            return
        cluster = urlsafe_b64encode(uuid.uuid4().bytes).decode().rstrip("=")
        if cluster.startswith("-"):  # the tool would take it for an option
            cluster = "A" + cluster[1:]
        result = subprocess.run(
            [*command, "kafka.tools.StorageTool", "format", "-t", cluster, "-c", str(properties)],
            capture_output=True,
            text=True,
            env=environment,
            timeout=120,
            check=False,
        )
        if result.returncode != 0:
            said = _last_lines(result.stdout + result.stderr)
            raise ServerError(f"Kafka's data folder {data} cannot be made:\n{said}")

    def _choose_ports(self) -> tuple[int, int]:
        last = self._remembered()
        broker = self._port or ports.prefer(last.get("broker"))
        controller = ports.prefer(last.get("controller"))
        while controller == broker:
            controller = ports.free()[0]
        return broker, controller

    def _remembered(self) -> dict[str, Any]:
        try:
            found = json.loads((self.folder / "ports.json").read_text())
        except (OSError, ValueError):
            return {}
        return found if isinstance(found, dict) else {}

    def _remember(self, chosen: dict[str, int]) -> None:
        with contextlib.suppress(OSError):
            (self.folder / "ports.json").write_text(json.dumps(chosen))


class _PortTaken(ServerError):
    """Somebody was faster."""


def _answers(port: int, bootstrap_servers: str) -> bool:
    """Whether the broker is registered and answers a client."""
    if not ports.accepts(port):
        return False
    from confluent_kafka import KafkaException
    from confluent_kafka.admin import AdminClient

    client = AdminClient({"bootstrap.servers": bootstrap_servers, "log_level": 0})
    try:
        return len(client.list_topics(timeout=2).brokers) == 1
    except KafkaException:
        return False


def _escape(value: str) -> str:
    """As Java's properties and argument files want it."""
    return value.replace("\\", "\\\\")


def _last_lines(text: str, count: int = 12) -> str:
    """The last errors of a log, else its last lines."""
    lines = text.splitlines()
    errors = [line for line in lines if " ERROR " in line or " FATAL " in line or "Exception" in line]
    return "\n".join((errors or lines)[-count:])
