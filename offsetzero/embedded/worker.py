"""One of our own processes (api, relay, a group): started, awaited, started again when it ends, stopped."""

import http.client
import os
import signal
import sys
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Protocol

from offsetzero.embedded import ports
from offsetzero.embedded.process import Child, trim_log, wait_for
from offsetzero.errors import ServerError
from offsetzero.settings import PREFIX

_READY_SECONDS = 60.0
_GRACE_SECONDS = 30.0
_RESTART_DELAYS = (1.0, 2.0, 5.0, 10.0, 30.0)  # seconds before a process that ended is started again
_STEADY_SECONDS = 60.0  # after which its next end counts as the first


class Report(Protocol):
    """Told what goes on, from several threads."""

    def step(self, name: str, state: str, detail: str = "") -> None:
        """A part is `starting`, `ready`, `stopping`, `stopped` or `ended`."""

    def jars(self, done: int, total: int) -> None:
        """So many bytes of Kafka's jars have arrived."""


class Process:
    """`offsetzero ARGUMENTS…` as a guarded child.

    Args:
        name: what it is, for people.
        arguments: of the command line.
        port: where it answers HTTP.
        path: what answers 200 when it is ready.
        environment: its settings; none of this process's own settings reach it.
        log: the file of its log lines.
        hold: descriptors that stay open until it is gone.
        report: told what becomes of it.
    """

    def __init__(
        self,
        name: str,
        arguments: Sequence[str],
        *,
        port: int,
        path: str,
        environment: Mapping[str, str],
        log: Path,
        hold: Sequence[int],
        report: Report,
    ) -> None:
        self.name = name
        self.port = port
        self.url = f"http://{ports.HOST}:{port}{path}"
        self._path = path
        self._arguments = arguments
        self._environment = environment
        self._log = log
        self._hold = hold
        self._report = report
        self._child: Child | None = None
        self._started = 0.0
        self._ready = False
        self._ends = 0
        self._restart_at: float | None = None

    def start(self, why: str = "") -> None:
        """Start it, without waiting."""
        self._report.step(self.name, "starting", why)
        trim_log(self._log)
        others = {name: value for name, value in os.environ.items() if not name.startswith(PREFIX)}
        self._child = Child(
            self.name,
            [sys.executable, "-m", "offsetzero", *self._arguments],
            log=self._log,
            env={**others, **self._environment},
            grace=_GRACE_SECONDS,
            hold=self._hold,
        )
        self._started = time.monotonic()
        self._restart_at = None
        self._ready = False

    def await_ready(self) -> None:
        """Wait until it answers.

        Raises:
            ServerError: it ended, or does not answer in time; with its last lines.
        """
        child = self._running()
        try:
            wait_for(child, self._answers, timeout=_READY_SECONDS, what=self.name)
        except ServerError as error:
            raise ServerError(f"{error}; it said (in {child.log}):\n{child.tail()}") from error
        self._is_ready()

    def check(self, *, supervise: bool) -> None:
        """Look whether it runs, and start it again some time after it ended.

        Raises:
            ServerError: it ended and is not supervised; with its last lines.
        """
        child = self._running()
        now = time.monotonic()
        if self._restart_at is not None:
            if now >= self._restart_at:
                self.start("again")
            return
        status = child.poll()
        if status is None:
            if not self._ready and self._answers():
                self._is_ready()
            return
        said = f"status {status}; the end of {child.log}:\n{child.tail(8)}"
        if not supervise:
            raise ServerError(f"{self.name} ended by itself with {said}")
        self._ends = 1 if now - self._started > _STEADY_SECONDS else self._ends + 1
        delay = _RESTART_DELAYS[min(self._ends, len(_RESTART_DELAYS)) - 1]
        self._restart_at = now + delay
        self._report.step(self.name, "ended", f"{said}\nIt is started again in {delay:.0f} s.")

    def ask_to_stop(self) -> None:
        """Begin to stop it."""
        if self._child is not None:
            self._report.step(self.name, "stopping")
            self._child.ask_to_stop()

    def stop(self) -> None:
        """Stop it and wait for its end."""
        if self._child is not None:
            status = self._child.stop()
            expected = (0, 128 + signal.SIGTERM)
            self._report.step(self.name, "stopped", "" if status in expected else f"with status {status}")

    def kill(self) -> None:
        """End it at once."""
        if self._child is not None:
            self._child.kill()

    def _running(self) -> Child:
        if self._child is None:
            raise ServerError(f"{self.name} was not started")
        return self._child

    def _is_ready(self) -> None:
        self._ready = True
        self._report.step(self.name, "ready", self.url)

    def _answers(self) -> bool:
        connection = http.client.HTTPConnection(ports.HOST, self.port, timeout=5)
        try:
            connection.request("GET", self._path)
            return connection.getresponse().status == 200
        except (OSError, http.client.HTTPException):
            return False
        finally:
            connection.close()
