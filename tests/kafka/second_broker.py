"""A second broker beside the embedded one, so that a topic can have two replicas, and lose one."""

import json
import subprocess
from pathlib import Path

from confluent_kafka.admin import AdminClient

from broker_config import BROKER
from offsetzero.embedded import java, kafka_config, ports
from offsetzero.embedded.jars import JarCache
from offsetzero.embedded.kafka import Kafka
from offsetzero.embedded.process import Child
from support import wait_until

NODE = 2


class SecondBroker:
    """Follows the first one's controller; started by hand, and stopped in order or by the end of a `with` block.

    Args:
        first: it runs.
        folder: for data.
    """

    def __init__(self, first: Kafka, folder: Path) -> None:
        self._folder = folder.absolute()
        self._folder.mkdir(parents=True)
        self._admin = AdminClient({"bootstrap.servers": first.bootstrap_servers, "log_level": 0})
        cluster = self._admin.list_topics(timeout=10).cluster_id
        controller = json.loads((first.folder / "ports.json").read_text())["controller"]
        (port,) = ports.free()
        config = {
            **BROKER,
            "process.roles": "broker",
            "node.id": str(NODE),
            "controller.quorum.voters": f"1@{ports.HOST}:{controller}",
            "listeners": f"PLAINTEXT://{ports.HOST}:{port}",
        }
        jars = ":".join(str(jar) for jar in JarCache().ensure())
        self._command = kafka_config.write(
            self._folder, java.find(), jars, broker=port, controller=controller, more=config
        )
        subprocess.run(
            [*self._command, "kafka.tools.StorageTool", "format", "-t", cluster, "-c", kafka_config.PROPERTIES],
            cwd=self._folder,
            env=java.environment(),
            check=True,
            capture_output=True,
        )
        self._child: Child | None = None

    def start(self) -> None:
        """Returns when the cluster has two brokers."""
        self._child = Child(
            "second Kafka",
            [*self._command, "kafka.Kafka", kafka_config.PROPERTIES],
            log=self._folder / "console.log",
            env=java.environment(),
            cwd=self._folder,
        )
        wait_until(lambda: self._count() == 2, 60, what="the second broker")

    def stop(self) -> None:
        """Returns when the cluster has one: its replicas have left the sets of those that are in sync."""
        if self._child is not None:
            self._child.stop()
            self._child = None
            wait_until(lambda: self._count() == 1, 60, what="the end of the second broker")

    def _count(self) -> int:
        return len(self._admin.list_topics(timeout=10).brokers)

    def __enter__(self) -> "SecondBroker":
        return self

    def __exit__(self, *_: object) -> None:
        if self._child is not None:
            self._child.stop()
