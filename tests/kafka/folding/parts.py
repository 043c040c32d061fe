"""What the proof runs besides itself: the processes of a deployment, or the same as threads of the test."""

import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager
from functools import partial
from pathlib import Path
from typing import Protocol

import pytest
from commands import Commands, CommandsHere
from kafka.conftest import RunningGroup
from kafka.rebuilding import Threads, following
from kafka.relayed import relaying

from offsetzero.cli import rebuild_members
from offsetzero.consumers.groups import notifier
from offsetzero.settings import Settings

GROUP = "shelf:shelf"


class Parts(Protocol):
    """Each is there for the time of a `with` block."""

    def command(self, *arguments: str) -> "subprocess.CompletedProcess[str]":
        """Run a command to its end, whatever its status is."""
        ...

    def member(self) -> AbstractContextManager[object]:
        """A member of the group's own, which works for whichever generation is read."""
        ...

    def relay(self) -> AbstractContextManager[object]: ...

    def notifier(self) -> AbstractContextManager[Callable[[], float] | None]:
        """With what kills it, and starts it anew; that answers when, by the monotonic clock."""
        ...


class Here:
    """Threads."""

    def __init__(self, settings: Settings, monkeypatch: pytest.MonkeyPatch, environment: Mapping[str, str]) -> None:
        self._settings = settings
        for name, value in environment.items():
            monkeypatch.setenv(name, value)
        self.command = CommandsHere(settings, monkeypatch, GROUP.partition(":")[0]).ask
        monkeypatch.setattr(rebuild_members, "Members", partial(Threads, settings))

    def member(self) -> AbstractContextManager[object]:
        return following(self._settings, GROUP)

    def relay(self) -> AbstractContextManager[object]:
        return relaying(self._settings)

    @contextmanager
    def notifier(self) -> Iterator[None]:
        webhooks = self._settings.webhooks.model_copy(update={"allow_private_targets": True})
        member = RunningGroup(notifier.group, self._settings.model_copy(update={"webhooks": webhooks}))
        try:
            yield
        finally:
            member.stop()


class Processes:
    """Processes, of which the notifier is killed now and then."""

    def __init__(self, settings: Settings, folder: Path, environment: Mapping[str, str], seconds: float) -> None:
        self._folder = folder
        self._commands = Commands(settings, folder)
        self._commands.environment |= environment
        self.command = partial(self._commands.ask, seconds=seconds)

    def member(self) -> AbstractContextManager[object]:
        return self._running("groups", "run", GROUP)

    def relay(self) -> AbstractContextManager[object]:
        return self._running("relay")

    def notifier(self) -> AbstractContextManager[Callable[[], float] | None]:
        return self._running("groups", "run", "notifier")

    @contextmanager
    def _running(self, *arguments: str) -> Iterator[Callable[[], float]]:
        log = self._folder / f"{time.monotonic_ns()}.log"
        with log.open("w") as output:

            def start() -> "subprocess.Popen[str]":
                command = [sys.executable, "-m", "offsetzero", *arguments]
                environment = self._commands.environment
                return subprocess.Popen(
                    command, cwd=self._folder, env=environment, stdout=output, stderr=output, text=True
                )

            process = start()

            def kill() -> float:
                nonlocal process
                process.kill()
                process.wait()
                killed_at = time.monotonic()
                process = start()
                return killed_at

            try:
                yield kill
                assert process.poll() is None, log.read_text()[-5_000:]
            finally:
                process.send_signal(signal.SIGTERM)
                try:
                    process.wait(60)
                finally:
                    process.kill()
        assert "crashed" not in log.read_text()
