"""What the embedded Kafka is started with: broker properties, logging, and the JVM's arguments."""

import os
from collections.abc import Mapping
from pathlib import Path

from offsetzero.embedded import ports

PROPERTIES = "server.properties"
LOG = "server.log"
DATA = "data"
FORMATTING = "format.properties"
UNFINISHED = "data.unfinished"
"""Where new data are made, to be there complete or not at all."""
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


def write(
    folder: Path, java: Path, class_path: str, *, broker: int, controller: int, more: Mapping[str, str]
) -> list[str]:
    """Write the files into the broker's folder.

    Args:
        folder: where they go, and where the broker works.
        java: the program.
        class_path: Kafka's jars.
        broker: the port for clients.
        controller: the port that the node uses for itself.
        more: properties that win over all others.

    Returns:
        The command that runs a class of Kafka's in the folder, without the class's name and arguments.
    """
    config = {
        **_CONFIG,
        "listeners": f"PLAINTEXT://{ports.HOST}:{broker},CONTROLLER://{ports.HOST}:{controller}",
        "advertised.listeners": f"PLAINTEXT://{ports.HOST}:{broker}",
        # the voter is named here, not in the metadata log, so that its port may change with each start
        "controller.quorum.voters": f"1@{ports.HOST}:{controller}",
        # relative to where the broker works: a list is split at commas, and properties are read as Latin-1
        "log.dirs": DATA,
        **more,
    }
    _write_properties(folder / PROPERTIES, config)
    _write_properties(folder / FORMATTING, {**config, "log.dirs": UNFINISHED})
    (folder / "log4j2.properties").write_text(_LOG4J)
    options = [*_JVM, "-Dlog4j2.configurationFile=log4j2.properties", f"-Doffsetzero.log={LOG}", "-cp", class_path]
    arguments = folder / "jvm.args"  # a file, so that `ps` shows a line one can read
    arguments.write_bytes(os.fsencode("".join(f'"{_escape(option)}"\n' for option in options)))
    return [str(java), f"@{arguments}"]


def _write_properties(path: Path, config: Mapping[str, str]) -> None:
    path.write_text("".join(f"{name}={value}\n" for name, value in config.items()))


def _escape(value: str) -> str:
    """As Java's argument files want it."""
    return value.replace("\\", "\\\\").replace('"', '\\"')
