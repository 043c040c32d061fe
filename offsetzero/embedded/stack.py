"""All parts of offsetzero on one machine, as `up` and `demo` run them: started together, stopped in order."""

import contextlib
import os
import threading
import time
from collections.abc import Mapping
from pathlib import Path

from offsetzero import endpoints
from offsetzero import settings as settings_module
from offsetzero.embedded import ports
from offsetzero.embedded.home import HomeLock
from offsetzero.embedded.kafka import Kafka
from offsetzero.embedded.postgres import Postgres
from offsetzero.embedded.tasks import all_of
from offsetzero.embedded.worker import Process, Report
from offsetzero.errors import ServerError
from offsetzero.settings import PREFIX, Settings

GROUPS = ("indexer", "summariser", "notifier")


class Stack:
    """Kafka, PostgreSQL, api, relay and groups on this machine.

    Servers that the environment names (`OFFSETZERO_KAFKA__BOOTSTRAP_SERVERS`, `OFFSETZERO_DATABASE_URL`) are used
    instead of embedded ones.

    Args:
        home: the folder of all data; locked as long as this runs.
        report: told what goes on.
        environment: settings of all processes; this process's environment adds none.
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
        all_of(self._start_kafka, self._start_postgres)
        config = self.settings = self._load()
        all_of(lambda: self._apply_topics(config), lambda: self._migrate(config))
        for process in self._plan():
            self.processes[process.name] = process
            process.start()
        for process in self.processes.values():
            process.await_ready()
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
            process.check(supervise=self._supervise)

    def stop(self) -> None:
        """Stop everything in order: intake, then the groups and the relay, then the servers."""
        self._stopping.set()
        try:
            api = [process for process in self.processes.values() if process.name == "api"]
            others = [process for process in self.processes.values() if process.name != "api"]
            for together in (api, others):
                for process in together:
                    process.ask_to_stop()
                for process in together:
                    process.stop()
            named = (("Kafka", self.kafka), ("PostgreSQL", self.postgres))
            servers = [(name, server) for name, server in named if server is not None]
            for name, server in servers:
                self._report.step(name, "stopping")
                server.ask_to_stop()
            for name, server in servers:
                server.stop()
                self._report.step(name, "stopped")
        finally:
            endpoints.file(self.home).unlink(missing_ok=True)

    def kill(self) -> None:
        """End everything at once."""
        for process in self.processes.values():
            process.kill()
        for server in (self.kafka, self.postgres):
            if server is not None:
                with contextlib.suppress(ServerError):
                    server.kill()
        endpoints.file(self.home).unlink(missing_ok=True)

    def close(self) -> None:
        """Let the folder go; after `stop` or `kill`."""
        self._lock.release()

    def write_endpoints(self) -> None:
        """Leave the addresses for commands in other terminals."""
        names = ("KAFKA__BOOTSTRAP_SERVERS", "DATABASE_URL")
        endpoints.write(self.home, {PREFIX + name: self._environment[PREFIX + name] for name in names})

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
            log.publish(contracts)
        finally:
            log.close()
        self._report.step("topics", "ready", f"{len(declared)} as declared")

    def _migrate(self, config: Settings) -> None:
        from offsetzero.store.migrate import upgrade

        self._report.step("tables", "starting")
        upgrade(config.database_url.get_secret_value())
        self._report.step("tables", "ready")

    def _plan(self) -> list[Process]:
        def process(name: str, arguments: tuple[str, ...], port: int, path: str, **settings: str) -> Process:
            own = {PREFIX + key: value for key, value in settings.items()}
            return Process(
                name,
                arguments,
                port=port,
                path=path,
                environment={**self._environment, **own},
                log=self.home / "logs" / f"{name}.log",
                hold=(self._lock.fileno(),),
                report=self._report,
            )

        port = self._api_port
        planned = [process("api", ("api",), port, "/readyz", API__PORT=str(port), API__HOST=ports.HOST)]
        others = [("relay", ("relay",)), *((name, ("groups", "run", name)) for name in GROUPS)]
        for (name, arguments), port in zip(others, ports.free(len(others)), strict=True):
            own = {"METRICS_PORT": str(port), "METRICS_HOST": ports.HOST}
            planned.append(process(name, arguments, port, "/metrics", **own))
        return planned


def inherited() -> dict[str, str]:
    """The settings in this process's environment."""
    return {name: value for name, value in os.environ.items() if name.startswith(PREFIX)}


def _since(started: float) -> str:
    return f"({time.monotonic() - started:.1f} s)"
