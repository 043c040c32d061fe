"""The command line as a person runs it."""

import contextlib
import io
import os
import subprocess
import sys
import threading
from pathlib import Path
from typing import TextIO

import pytest
from typer.exceptions import TyperException

from offsetzero import logs
from offsetzero.cli.app import app, report
from offsetzero.settings import Settings


class Commands:
    """Runs `offsetzero …` with the settings of the test, in a process of its own."""

    def __init__(self, settings: Settings, folder: Path) -> None:
        self._folder = folder
        self.environment = {
            **{name: value for name, value in os.environ.items() if not name.startswith("OFFSETZERO_")},
            "OFFSETZERO_HOME": str(settings.home),
            "OFFSETZERO_KAFKA__BOOTSTRAP_SERVERS": settings.kafka.bootstrap_servers,
            "OFFSETZERO_KAFKA__NAMESPACE": settings.kafka.namespace,
            "OFFSETZERO_DATABASE_URL": settings.database_url.get_secret_value(),
        }

    def __call__(
        self, *arguments: str, status: int = 0, stdin: str = "", **environment: str
    ) -> subprocess.CompletedProcess[str]:
        done = self.ask(*arguments, stdin=stdin, **environment)
        assert done.returncode == status, done.stdout + done.stderr
        assert "Traceback" not in done.stderr
        return done

    def ask(
        self, *arguments: str, stdin: str = "", seconds: float = 90, **environment: str
    ) -> subprocess.CompletedProcess[str]:
        """The same, whatever its exit status is."""
        return subprocess.run(
            [sys.executable, "-m", "offsetzero", *arguments],
            cwd=self._folder,
            env={**self.environment, **environment},
            input=stdin,
            capture_output=True,
            text=True,
            timeout=seconds,
            check=False,
        )

    def start(self, *arguments: str, **environment: str) -> "subprocess.Popen[str]":
        """Start a command that goes on; the caller ends it."""
        return subprocess.Popen(
            [sys.executable, "-m", "offsetzero", *arguments],
            cwd=self._folder,
            env={**self.environment, **environment},
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )


class _OfThisThread(io.StringIO):
    """What the thread writes that has made it; others, which log while a command runs, write where they did before."""

    def __init__(self, elsewhere: TextIO) -> None:
        super().__init__()
        self._elsewhere = elsewhere
        self._thread = threading.get_ident()

    def write(self, text: str) -> int:
        return super().write(text) if threading.get_ident() == self._thread else self._elsewhere.write(text)


class CommandsHere:
    """Runs `offsetzero …` in the test's own process, which takes a tenth of the time: the same map, errors and status.

    What is not there: signals, that nothing was imported or declared before, and logs of its own, which would stay.

    Args:
        settings: of the test.
        monkeypatch: sets the environment, and the working folder.
        module: of a group of the test's own, in the folder of the settings, which is the working folder then.
    """

    def __init__(self, settings: Settings, monkeypatch: pytest.MonkeyPatch, module: str = "") -> None:
        self.in_process_of_its_own = Commands(settings, settings.home)
        if module:
            monkeypatch.chdir(settings.home)
            monkeypatch.syspath_prepend(str(settings.home))
            monkeypatch.delitem(sys.modules, module, raising=False)  # that of another test
        for name, value in self.in_process_of_its_own.environment.items():
            if name.startswith("OFFSETZERO_"):
                monkeypatch.setenv(name, value)

    def __call__(
        self, *arguments: str, status: int = 0, stdin: str = "", **environment: str
    ) -> subprocess.CompletedProcess[str]:
        done = self.ask(*arguments, stdin=stdin, **environment)
        assert done.returncode == status, done.stdout + done.stderr
        return done

    def ask(self, *arguments: str, stdin: str = "", **environment: str) -> subprocess.CompletedProcess[str]:
        """The same, whatever its exit status is."""
        out, err, ended = _OfThisThread(sys.stdout), _OfThisThread(sys.stderr), 0
        with (
            pytest.MonkeyPatch.context() as patch,
            contextlib.redirect_stdout(out),
            contextlib.redirect_stderr(err),
        ):
            patch.setattr(logs, "configure", lambda **_: None)
            patch.setattr(sys, "stdin", io.StringIO(stdin))
            for name, value in environment.items():
                patch.setenv(name, value)
            try:
                ended = app(list(arguments), prog_name="offsetzero", standalone_mode=False) or 0
            except TyperException as error:  # of how it was used
                error.show()
                ended = error.exit_code
            except Exception as error:
                if not report(error):
                    raise
                ended = 1
        return subprocess.CompletedProcess(arguments, ended, out.getvalue(), err.getvalue())
