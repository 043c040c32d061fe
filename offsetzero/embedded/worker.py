"""One of our own processes (api, relay, a group): started, awaited, started again when it ends, stopped."""

import http.client
import os
import signal
import sys
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Protocol

from offsetzero.embedded import ports, priority
from offsetzero.embedded.process import Child, trim_log, wait_for
from offsetzero.errors import ServerError
from offsetzero.settings import PREFIX

_READY_SECONDS = 60.0
_GRACE_SECONDS = 30.0
_RESTART_DELAYS = (1.0, 2.0, 5.0, 10.0, 30.0)  # seconds before a process that ended is started again
_PORT_RACES = 3  # a free port may be taken between our look and the process's bind
_WORK_SECONDS = 30.0  # after which a process counts as ready though it has no work assigned
_PATIENCE_SECONDS = 2.0  # after which we say what is waited for
_STEADY_SECONDS = 60.0  # after which its next end counts as the first
_WAITS = "waits for its partitions; members of a run that was killed are missed after 10 s"
_IDLE = "(no partition yet: other members have them; see `offsetzero groups list`)"


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
        port_setting: the setting that tells it the port.
        movable: take another port when somebody else has taken this one before it.
        path: what answers 200 when it is ready.
        works_when: what the answer also holds when it can work; nothing for one that can work at once.
        environment: its settings; none of this process's own settings reach it.
        log: the file of its log lines.
        hold: descriptors that stay open until it is gone.
        report: told what becomes of it.
        nice: how much it gives way to the others, once it is ready, when all of them want to compute: on one machine,
            what works a queue off must not be why an upload is answered late.
    """

    def __init__(
        self,
        name: str,
        arguments: Sequence[str],
        *,
        port: int,
        port_setting: str,
        movable: bool = True,
        path: str,
        works_when: str = "",
        environment: Mapping[str, str],
        log: Path,
        hold: Sequence[int],
        report: Report,
        nice: int = 0,
    ) -> None:
        self.name = name
        self.port = port
        self._port_setting = port_setting
        self._movable = movable
        self._path = path
        self._works_when = works_when
        self._arguments = arguments
        self._environment = environment
        self._log = log
        self._hold = hold
        self._report = report
        self._nice = nice
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
            env={**others, **self._environment, PREFIX + self._port_setting: str(self.port)},
            grace=_GRACE_SECONDS,
            hold=self._hold,
        )
        self._started = time.monotonic()
        self._restart_at = None
        self._ready = False

    @property
    def url(self) -> str:
        """Where it answers."""
        return f"http://{ports.HOST}:{self.port}{self._path}"

    def await_ready(self) -> None:
        """Wait until it answers, and until it can work: a group has its share of the partitions.

        Raises:
            ServerError: it ended, or does not answer in time; with its last lines.
        """
        for race in range(_PORT_RACES):
            try:
                self._await_answer()
                break
            except ServerError:
                if race == _PORT_RACES - 1 or not self._lost_its_port():
                    raise
                self.start("on another port")
        self._await_work()

    def _await_answer(self) -> None:
        child = self._running()
        try:
            wait_for(child, lambda: self._answers() is not None, timeout=_READY_SECONDS, what=self.name)
        except ServerError as error:
            raise ServerError(f"{error}; it said (in {child.log}):\n{child.tail()}") from error

    def _await_work(self) -> None:
        answered = time.monotonic()
        told = False
        while not self._works() and time.monotonic() - answered < _WORK_SECONDS:
            status = self._running().poll()
            if status is not None:
                raise ServerError(f"{self.name} ended with status {status}; it said:\n{self._running().tail()}")
            if not told and time.monotonic() - answered > _PATIENCE_SECONDS:
                told = True
                self._report.step(self.name, "starting", _WAITS)
            time.sleep(0.1)
        self._is_ready()

    def _lost_its_port(self) -> bool:
        """Whether it ended because its port was taken, and has another one now."""
        child = self._running()
        if not self._movable or child.poll() is None or "Address already in use" not in child.tail():
            return False
        self.port = ports.free()[0]
        return True

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
            if not self._ready and (self._works() or now - self._started > _WORK_SECONDS):
                self._is_ready()
            return
        said = f"status {status}; the end of {child.log}:\n{child.tail(8)}"
        if not supervise:
            raise ServerError(f"{self.name} ended by itself with {said}")
        self._ends = 1 if now - self._started > _STEADY_SECONDS else self._ends + 1
        delay = _RESTART_DELAYS[min(self._ends, len(_RESTART_DELAYS)) - 1]
        self._restart_at = now + delay
        self._lost_its_port()
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
        if self._nice:  # not before: on a busy machine it would not even start in time
            priority.lower(self._running().pid, self._nice)
        self._report.step(self.name, "ready", self.url if self._works() else f"{self.url}   {_IDLE}")

    def _works(self) -> bool:
        answer = self._answers()
        return answer is not None and self._works_when in answer

    def _answers(self) -> str | None:
        """What it answers; None while it does not, or when another program answers in its place."""
        connection = http.client.HTTPConnection(ports.HOST, self.port, timeout=5)
        try:
            connection.request("GET", self._path)
            answer = connection.getresponse()
            text = answer.read().decode(errors="replace")
            return text if answer.status == 200 and self._running().poll() is None else None
        except (OSError, http.client.HTTPException):
            return None
        finally:
            connection.close()
