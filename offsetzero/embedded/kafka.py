"""One Apache Kafka node as a child JVM: KRaft, no ZooKeeper, on loopback only."""

import contextlib
import json
import os
import threading
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from offsetzero.embedded import disk, features, java, kafka_config, kafka_data, ports
from offsetzero.embedded.jars import JarCache, Progress
from offsetzero.embedded.process import Child, tail, trim_log, wait_for
from offsetzero.errors import ServerError

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
        self.log = self.folder / kafka_config.LOG
        self.log_start = 0
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
        class_path = _class_path(self._jars.ensure(progress))
        self.folder.mkdir(parents=True, exist_ok=True, mode=0o700)  # the log holds what people upload
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
        command = kafka_config.write(
            self.folder, java_path, class_path, broker=broker, controller=controller, more=self._config
        )
        cluster = kafka_data.make(self.folder, command)
        if self._stopping.is_set():
            raise ServerError("Kafka was stopped while it started")
        console = self.folder / "console.log"
        trim_log(console)
        self.log_start = self.log.stat().st_size if self.log.exists() else 0
        child = Child(
            "Kafka",
            [*command, "kafka.Kafka", kafka_config.PROPERTIES],
            log=console,
            env=java.environment(),
            cwd=self.folder,
            hold=self._hold,
        )
        self._child = child
        if self._stopping.is_set():
            child.ask_to_stop()
        self.bootstrap_servers = f"{ports.HOST}:{broker}"
        try:
            wait_for(child, lambda: _answers(broker, cluster), timeout=90, what="Kafka")
        except ServerError as error:
            child.kill()
            said = (tail(self.log, 200, start=self.log_start) + "\n" + child.tail(200)).strip()
            if "Address already in use" in said:
                raise _PortTaken(f"Kafka: port {broker} or {controller} was taken while it started") from error
            text = f"{error}; it said (in {self.log}):\n{kafka_data.last_lines(said)}{disk.hint(said, self.folder)}"
            raise ServerError(text) from error
        features.upgrade(broker)  # data of an older Kafka
        self._remember({"broker": broker, "controller": controller})

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


def _class_path(jars: Sequence[Path]) -> str:
    if any(os.pathsep in str(jar) for jar in jars):
        raise ServerError(
            f"Java cannot use jars in {jars[0].parent}: the name holds a {os.pathsep!r}; "
            "choose another cache with XDG_CACHE_HOME"
        )
    return os.pathsep.join(str(jar) for jar in jars)


def _answers(port: int, cluster: str) -> bool:
    """Whether our broker is registered and answers a client: another one may have taken the port before it."""
    if not ports.accepts(port):
        return False
    from confluent_kafka import KafkaException
    from confluent_kafka.admin import AdminClient

    client = AdminClient({"bootstrap.servers": f"{ports.HOST}:{port}", "log_level": 0})
    try:
        found = client.list_topics(timeout=2)
        return len(found.brokers) == 1 and found.cluster_id == cluster
    except KafkaException:
        return False
