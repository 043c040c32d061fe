"""All parts of offsetzero on one machine, as `up` and `demo` run them: started together, stopped in order."""

import contextlib
import http.client
import os
import queue
import signal
import sys
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Protocol

from offsetzero import settings as settings_module
from offsetzero.embedded import ports
from offsetzero.embedded.home import HomeLock
from offsetzero.embedded.kafka import Kafka
from offsetzero.embedded.postgres import Postgres
from offsetzero.embedded.process import Child, trim_log, wait_for
from offsetzero.errors import SchemasUnavailable, ServerError
from offsetzero.settings import PREFIX, Settings

GROUPS = ("indexer", "summariser", "notifier")
_RESTART_DELAYS = (1.0, 2.0, 5.0, 10.0, 30.0)  # seconds before a process that ended is started again
_STEADY_SECONDS = 60.0  # after which its next end counts as the first


class Report(Protocol):
    """Told what goes on, from several threads."""

    def step(self, name: str, state: str, detail: str = "") -> None:
        """A part is `starting`, `ready`, `stopping`, `stopped`, `ended` or `failed`."""

    def jars(self, done: int, total: int) -> None:
        """So many bytes of Kafka's jars have arrived."""


@dataclass(slots=True)
class Process:
    """One of our own processes, and what is needed to start it again."""

    name: str
    arguments: tuple[str, ...]
    port: int
    path: str
    """What answers 200 when it is ready."""
    environment: dict[str, str] = field(default_factory=dict)
    child: Child | None = None
    started: float = 0.0
    ends: int = 0
    restart_at: float | None = None
    ready: bool = False


class Stack:
    """Kafka, PostgreSQL, api, relay and groups on this machine.

    Servers that the environment names (`OFFSETZERO_KAFKA__BOOTSTRAP_SERVERS`, `OFFSETZERO_DATABASE_URL`) are used
    instead of embedded ones.

    Args:
        home: the folder of all data; locked as long as this runs.
        report: told what goes on.
        environment: settings for all processes, over those of this process's environment.
        api_port: port of the API; 0 takes a free one.
        database: PostgreSQL settings.
        supervise: start a process that ended again; else its end is an error.
    """

    def __init__(
        self,
        home: Path,
        report: Report,
        *,
        environment: Mapping[str, str],
        api_port: int,
        database: Mapping[str, str] | None = None,
        supervise: bool = True,
    ) -> None:
        self.home = home.absolute()
        self.settings: Settings | None = None
        self.processes: dict[str, Process] = {}
        self._report = report
        self._environment = {**environment, PREFIX + "HOME": str(self.home)}
        self._api_port = api_port
        self._supervise = supervise
        self._lock = HomeLock(self.home)
        hold = (self._lock.fileno(),)
        self._stopping = threading.Event()
        kafka_given = self._environment.get(PREFIX + "KAFKA__BOOTSTRAP_SERVERS")
        database_given = self._environment.get(PREFIX + "DATABASE_URL")
        self.kafka = None if kafka_given else Kafka(self.home / "kafka", hold=hold)
        self.postgres = None if database_given else Postgres(self.home / "postgres", config=database, hold=hold)

    @property
    def api_url(self) -> str:
        """Where the API answers."""
        return f"http://{ports.HOST}:{self._api_port}"

    def start(self) -> Settings:
        """Start everything and return when every part is ready.

        Returns:
            Settings that reach the servers.

        Raises:
            ServerError: a part did not start; the rest is still to be stopped by `stop`.
        """
        self._api_port = ports.require(
            self._api_port, "api", f"choose another with --port or {PREFIX}API__PORT (0 takes a free one)"
        )
        _all_of(self._start_kafka, self._start_postgres)
        config = self.settings = self._load()
        _all_of(lambda: self._apply_topics(config), lambda: self._migrate(config))
        for process in self._plan():
            self.processes[process.name] = process
            self._report.step(process.name, "starting")
            self._launch(process)
        for process in self.processes.values():
            self._await(process)
            self._is_ready(process)
        return config

    def check(self) -> None:
        """Look at every part: a process of ours that ended is started again after a while, if they are supervised.

        Raises:
            ServerError: a server ended, or a process that is not supervised.
        """
        for name, server in (("Kafka", self.kafka), ("PostgreSQL", self.postgres)):
            status = server.poll() if server is not None else None
            if server is not None and status is not None:
                raise ServerError(f"{name} ended by itself with status {status}; see {server.log}")
        for process in self.processes.values():
            self._check_process(process)

    def stop(self) -> None:
        """Stop everything in order: intake, then the groups and the relay, then the servers."""
        self._stopping.set()
        try:
            started = [process for process in self.processes.values() if process.child is not None]
            self._stop_all([process for process in started if process.name == "api"])
            self._stop_all([process for process in started if process.name != "api"])
            named = (("Kafka", self.kafka), ("PostgreSQL", self.postgres))
            servers = [(name, server) for name, server in named if server is not None]
            for name, server in servers:
                self._report.step(name, "stopping")
                server.ask_to_stop()
            for name, server in servers:
                server.stop()
                self._report.step(name, "stopped")
        finally:
            settings_module.endpoints_file(self.home).unlink(missing_ok=True)

    def kill(self) -> None:
        """End everything at once."""
        for process in self.processes.values():
            if process.child is not None:
                process.child.kill()
        for server in (self.kafka, self.postgres):
            if server is not None:
                with contextlib.suppress(ServerError):
                    server.kill()
        settings_module.endpoints_file(self.home).unlink(missing_ok=True)

    def close(self) -> None:
        """Let the folder go; after `stop` or `kill`."""
        self._lock.release()

    def write_endpoints(self) -> None:
        """Leave the addresses for commands in other terminals."""
        names = ("KAFKA__BOOTSTRAP_SERVERS", "DATABASE_URL")
        settings_module.write_endpoints(self.home, {PREFIX + name: self._environment[PREFIX + name] for name in names})

    def _start_kafka(self) -> None:
        if self.kafka is None:
            return
        self._report.step("Kafka", "starting")
        started = time.monotonic()
        self.kafka.start(self._jars_arrive)
        self._environment[PREFIX + "KAFKA__BOOTSTRAP_SERVERS"] = self.kafka.bootstrap_servers
        self._report.step("Kafka", "ready", f"{self.kafka.bootstrap_servers}  {_since(started)}")

    def _jars_arrive(self, done: int, total: int) -> None:
        if self._stopping.is_set():
            raise ServerError("stopped while Kafka's jars were fetched")
        self._report.jars(done, total)

    def _start_postgres(self) -> None:
        if self.postgres is None:
            return
        self._report.step("PostgreSQL", "starting")
        started = time.monotonic()
        self.postgres.start()
        self._environment[PREFIX + "DATABASE_URL"] = self.postgres.url()
        self._report.step("PostgreSQL", "ready", f"{ports.HOST}:{self.postgres.port}  {_since(started)}")

    def _load(self) -> Settings:
        before = dict(os.environ)
        for name in [name for name in os.environ if name.startswith(PREFIX)]:
            del os.environ[name]
        os.environ.update(self._environment)
        try:
            return settings_module.load(needs=frozenset({"kafka", "database"}))
        finally:
            os.environ.clear()
            os.environ.update(before)

    def _apply_topics(self, config: Settings) -> None:
        from offsetzero.schemas import frozen
        from offsetzero.topics import catalogue, cluster
        from offsetzero.topics.plan import make_plan
        from offsetzero.topics.schema_log import SchemaLog

        self._report.step("topics", "starting")
        declared = catalogue.declared(config)
        cluster.apply(config, make_plan(declared, cluster.read(config, [topic.name for topic in declared])))
        contracts = [contract.schema for versions in frozen.of_package().values() for contract in versions]
        log = SchemaLog(config)
        try:
            _tried_again(lambda: log.publish(contracts))
        finally:
            log.close()
        self._report.step("topics", "ready", f"{len(declared)} as declared")

    def _migrate(self, config: Settings) -> None:
        from offsetzero.store.migrate import upgrade

        self._report.step("tables", "starting")
        upgrade(config.database_url.get_secret_value())
        self._report.step("tables", "ready")

    def _plan(self) -> list[Process]:
        metrics_ports = ports.free(len(GROUPS) + 1)
        processes = [Process("api", ("api",), self._api_port, "/readyz")]
        processes[0].environment = {PREFIX + "API__PORT": str(self._api_port), PREFIX + "API__HOST": ports.HOST}
        others = [("relay", ("relay",)), *((name, ("groups", "run", name)) for name in GROUPS)]
        for (name, arguments), port in zip(others, metrics_ports, strict=True):
            environment = {PREFIX + "METRICS_PORT": str(port), PREFIX + "METRICS_HOST": ports.HOST}
            processes.append(Process(name, arguments, port, "/metrics", environment))
        return processes

    def _launch(self, process: Process) -> None:
        log = self.home / "logs" / f"{process.name}.log"
        trim_log(log)
        others = {name: value for name, value in os.environ.items() if not name.startswith(PREFIX)}
        process.child = Child(
            process.name,
            [sys.executable, "-m", "offsetzero", *process.arguments],
            log=log,
            env={**others, **self._environment, **process.environment},
            stop_signal=signal.SIGTERM,
            grace=30,
            hold=(self._lock.fileno(),),
        )
        process.started = time.monotonic()
        process.restart_at = None
        process.ready = False

    def _await(self, process: Process) -> None:
        child = process.child
        assert child is not None  # noqa: S101
        try:
            wait_for(child, lambda: _answers(process.port, process.path), timeout=60, what=process.name)
        except ServerError as error:
            raise ServerError(f"{error}; it said (in {child.log}):\n{child.tail()}") from error

    def _is_ready(self, process: Process) -> None:
        process.ready = True
        self._report.step(process.name, "ready", f"http://{ports.HOST}:{process.port}{process.path}")

    def _check_process(self, process: Process) -> None:
        child = process.child
        if child is None:
            return
        now = time.monotonic()
        if process.restart_at is not None:
            if now >= process.restart_at:
                self._launch(process)
                self._report.step(process.name, "starting", "again")
            return
        status = child.poll()
        if status is None:
            if not process.ready and _answers(process.port, process.path):
                self._is_ready(process)
            return
        said = f"status {status}; the end of {child.log}:\n{child.tail(8)}"
        if not self._supervise:
            raise ServerError(f"{process.name} ended by itself with {said}")
        process.ends = 1 if now - process.started > _STEADY_SECONDS else process.ends + 1
        delay = _RESTART_DELAYS[min(process.ends, len(_RESTART_DELAYS)) - 1]
        process.restart_at = now + delay
        self._report.step(process.name, "ended", f"{said}\nIt is started again in {delay:.0f} s.")

    def _stop_all(self, processes: Sequence[Process]) -> None:
        for process in processes:
            if process.child is not None:
                self._report.step(process.name, "stopping")
                process.child.ask_to_stop()
        for process in processes:
            if process.child is not None:
                status = process.child.stop()
                self._report.step(
                    process.name, "stopped", "" if status in (0, 128 + signal.SIGTERM) else f"status {status}"
                )


def inherited() -> dict[str, str]:
    """The settings in this process's environment."""
    return {name: value for name, value in os.environ.items() if name.startswith(PREFIX)}


def _answers(port: int, path: str) -> bool:
    connection = http.client.HTTPConnection(ports.HOST, port, timeout=5)
    try:
        connection.request("GET", path)
        return connection.getresponse().status == 200
    except (OSError, http.client.HTTPException):
        return False
    finally:
        connection.close()


def _tried_again(task: Callable[[], object], seconds: float = 15.0) -> None:
    """Run a task, again if need be: a topic just made has a leader in the metadata before that leader serves it."""
    deadline = time.monotonic() + seconds
    while True:
        try:
            task()
            return
        except SchemasUnavailable:
            if time.monotonic() > deadline:
                raise
            time.sleep(0.1)


def _since(started: float) -> str:
    return f"({time.monotonic() - started:.1f} s)"


def _all_of(*tasks: Callable[[], None]) -> None:
    """Run tasks at once, each in a thread, to the end of all or the first failure, which is raised.

    The threads are daemons: after a failure or Ctrl-C the main thread stops what they wait for.
    """
    results: queue.SimpleQueue[BaseException | None] = queue.SimpleQueue()

    def run(task: Callable[[], None]) -> None:
        try:
            task()
        except BaseException as error:
            results.put(error)
        else:
            results.put(None)

    for task in tasks:
        threading.Thread(target=run, args=(task,), daemon=True).start()
    for _ in tasks:
        problem = results.get()
        if problem is not None:
            raise problem
