"""The command line as a person runs it: a process of its own."""

import os
import subprocess
import sys
from pathlib import Path

from offsetzero.settings import Settings


class Commands:
    """Runs `offsetzero …` with the settings of the test."""

    def __init__(self, settings: Settings, folder: Path) -> None:
        self._folder = folder
        self._environment = {
            **{name: value for name, value in os.environ.items() if not name.startswith("OFFSETZERO_")},
            "OFFSETZERO_HOME": str(settings.home),
            "OFFSETZERO_KAFKA__BOOTSTRAP_SERVERS": settings.kafka.bootstrap_servers,
            "OFFSETZERO_KAFKA__NAMESPACE": settings.kafka.namespace,
            "OFFSETZERO_DATABASE_URL": settings.database_url.get_secret_value(),
        }

    def __call__(
        self, *arguments: str, status: int = 0, stdin: str = "", **environment: str
    ) -> subprocess.CompletedProcess[str]:
        done = subprocess.run(
            [sys.executable, "-m", "offsetzero", *arguments],
            cwd=self._folder,
            env={**self._environment, **environment},
            input=stdin,
            capture_output=True,
            text=True,
            timeout=90,
            check=False,
        )
        assert done.returncode == status, done.stdout + done.stderr
        assert "Traceback" not in done.stderr
        return done

    def start(self, *arguments: str, **environment: str) -> "subprocess.Popen[str]":
        """Start a command that goes on; the caller ends it."""
        return subprocess.Popen(
            [sys.executable, "-m", "offsetzero", *arguments],
            cwd=self._folder,
            env={**self._environment, **environment},
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
