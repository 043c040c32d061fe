"""All parts of offsetzero on one machine, as `up` and `demo` run them: started together, stopped in order."""

import contextlib
import json
import os
import threading
import time
from collections.abc import Mapping
from pathlib import Path

from offsetzero import endpoints
from offsetzero import settings as settings_module
from offsetzero.embedded import contents, disk, ports, version
from offsetzero.embedded.fresh import remove
from offsetzero.embedded.home import HomeLock
from offsetzero.embedded.kafka import Kafka
from offsetzero.embedded.postgres import Postgres
from offsetzero.embedded.process import tail
from offsetzero.embedded.tasks import all_of
from offsetzero.embedded.worker import Process, Report
from offsetzero.errors import ServerError
from offsetzero.metrics import LAG_RECORDS
from offsetzero.settings import PREFIX, Settings

GROUPS = ("indexer", "summariser", "notifier", "ledger", "usage")
# A step takes a fifth of a process's time when others want it: 15 leaves it a thirtieth of what the API gets. All that
# is new comes through the relay, which needs little; what `usage` counts may be late.
_NICE = {"api": 0, "relay": 10, "usage": 19}
_NICE_OF_OTHERS = 15


class Stack:
    """Kafka, PostgreSQL, api, relay, scheduler, sweeper and groups on this machine.

    Servers that the environment names (`OFFSETZERO_KAFKA__BOOTSTRAP_SERVERS`, `OFFSETZERO_DATABASE_URL`) are used
    instead of embedded ones.

    Args:
        home: the folder of all data; locked as long as this runs.
        report: told what goes on.
        environment: settings of all processes; this process's environment adds none.
        api_port: port of the API; 0 takes a free one.
        database: PostgreSQL settings.
        supervise: start a process that ended again; else its end is an error.
        fresh: remove all data of the folder first, when nobody uses it.
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
        fresh: bool = False,
    ) -> None:
        self.home = home.absolute()
        self.settings: Settings | None = None
        self.processes: dict[str, Process] = {}
        self._report = report
        self._environment = {**environment, PREFIX + "HOME": str(self.home)}
        self._api_port = api_port
        self._any_port = api_port == 0
        self._supervise = supervise
        self._begun: set[str] = set()
        self._lock = HomeLock(self.home)
        try:
            version.check(self.home)
            if fresh:
                remove(self.home)
        except BaseException:
            self._lock.release()
            raise
        hold = (self._lock.fileno(),)
        self._stopping = threading.Event()
        kafka_given = self._environment.get(PREFIX + "KAFKA__BOOTSTRAP_SERVERS")
        database_given = self._environment.get(PREFIX + "DATABASE_URL")
        self.kafka = None if kafka_given else Kafka(self.home / "kafka", hold=hold)
        self.postgres = None if database_given else Postgres(self.home / "postgres", config=database, hold=hold)

    @property
    def api_url(self) -> str:
        """Where the API answers."""
        port = self.processes["api"].port if "api" in self.processes else self._api_port
        return f"http://{ports.HOST}:{port}"

    def start(self) -> Settings:
        """Start everything and return when every part is ready.

        Returns:
            Settings that reach the servers.

        Raises:
            ServerError: a part did not start; the rest is still to be stopped by `stop`.
        """
        self._api_port = ports.require(self._api_port, "api", ports.API_REMEDY)
        with disk.told(self.home):
            disk.require(self.home)
            version.record(self.home)
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
                more = disk.hint(tail(server.log, 200, start=server.log_start), server.folder)
                raise ServerError(f"{name} ended by itself with status {status}; see {server.log}{more}")
        for process in self.processes.values():
            process.check(supervise=self._supervise)

    def stop(self) -> None:
        """Stop everything in order: intake, then the groups, the relay and the scheduler, then the servers."""
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
            servers = [(name, server) for name, server in named if server is not None and name in self._begun]
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
        self._begun.add("Kafka")
        self._report.step("Kafka", "starting")
        started = time.monotonic()
        with disk.told(self.kafka.folder):
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
        self._begun.add("PostgreSQL")
        self._report.step("PostgreSQL", "starting")
        started = time.monotonic()
        with disk.told(self.postgres.folder):
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
        self._report.step("topics", "starting")
        self._report.step("topics", "ready", f"{contents.apply_topics(config)} as declared")

    def _migrate(self, config: Settings) -> None:
        self._report.step("tables", "starting")
        contents.migrate(config)
        self._report.step("tables", "ready")

    def _plan(self) -> list[Process]:
        loopback = {PREFIX + "API__HOST": ports.HOST, PREFIX + "METRICS_HOST": ports.HOST}

        relay, scheduler, sweeper, *others = ports.free(3 + len(GROUPS))
        by_group = dict(zip(GROUPS, others, strict=True))
        usage_url = json.dumps([f"http://{ports.HOST}:{by_group['usage']}"])

        def process(name: str, arguments: tuple[str, ...], port: int, works_when: str = "") -> Process:
            api = name == "api"
            return Process(
                name,
                arguments,
                port=port,
                port_setting="API__PORT" if api else "METRICS_PORT",
                movable=name != "usage" and (not api or self._any_port),  # the API has been told where usage is
                path="/readyz" if api else "/metrics",
                works_when=works_when,
                environment={PREFIX + "USAGE__URLS": usage_url, **self._environment, **loopback},
                log=self.home / "logs" / f"{name}.log",
                hold=(self._lock.fileno(),),
                report=self._report,
                nice=_NICE.get(name, _NICE_OF_OTHERS),
            )

        planned = [
            process("api", ("api",), self._api_port),
            process("relay", ("relay",), relay),
            process("scheduler", ("scheduler",), scheduler),
            process("sweeper", ("sweeper",), sweeper),
        ]
        for name, port in by_group.items():
            lag = f'{next(iter(LAG_RECORDS.describe())).name}{{group="{name}"'  # there is one for each partition it has
            planned.append(process(name, ("groups", "run", name), port, lag))
        return planned


def inherited() -> dict[str, str]:
    """The settings in this process's environment."""
    return {name: value for name, value in os.environ.items() if name.startswith(PREFIX)}


def _since(started: float) -> str:
    return f"({time.monotonic() - started:.1f} s)"
