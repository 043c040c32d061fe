"""The members of a group, each a process as a person starts it, and what their logs say of them."""

import json
import os
import random
import signal
import subprocess
import sys
from collections import Counter
from pathlib import Path
from typing import Any

from chaos.subjects import KINDS

from offsetzero.settings import Settings


class Member:
    """One process; it writes its log to a file.

    Args:
        settings: given to it by its environment.
        kind: of its handler.
        log: the file.
    """

    def __init__(self, settings: Settings, kind: str, log: Path) -> None:
        self.kind = kind
        self._log = log
        with log.open("wb") as output:
            self._process = subprocess.Popen(
                [sys.executable, "-m", "offsetzero", "groups", "run", f"subjects:{kind}"],
                cwd=Path(__file__).parent,
                env={
                    **{name: value for name, value in os.environ.items() if not name.startswith("OFFSETZERO_")},
                    "OFFSETZERO_HOME": str(settings.home),
                    "OFFSETZERO_KAFKA__BOOTSTRAP_SERVERS": settings.kafka.bootstrap_servers,
                    "OFFSETZERO_KAFKA__OPTIONS": json.dumps(settings.kafka.options),
                    "OFFSETZERO_KAFKA__GROUP_PROTOCOL": settings.kafka.group_protocol,
                    "OFFSETZERO_DATABASE_URL": settings.database_url.get_secret_value(),
                    "OFFSETZERO_LOG_FORMAT": "json",
                    "PYTHONDONTWRITEBYTECODE": "1",
                },
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=output,
            )

    @property
    def pid(self) -> int:
        return self._process.pid

    def kill(self) -> None:
        """As the kernel does when memory is short."""
        self._process.send_signal(signal.SIGKILL)
        self._process.wait()

    def freeze(self) -> None:
        """As a paused machine: it does nothing, and its connections stay."""
        self._process.send_signal(signal.SIGSTOP)

    def thaw(self) -> None:
        """It goes on, as if no time had passed."""
        self._process.send_signal(signal.SIGCONT)

    def stop(self) -> int:
        """Its exit status after SIGTERM."""
        self._process.send_signal(signal.SIGTERM)
        return self._process.wait(60)

    def status(self) -> int | None:
        """None while it runs."""
        return self._process.poll()

    def said(self) -> Counter[str]:
        """How often it has logged which line."""
        return Counter(line["event"] for line in self._lines())

    def troubles(self) -> str:
        """What it has logged as a warning or worse."""
        lines = [line for line in self._lines() if line.get("level") not in ("debug", "info")]
        return "\n".join(str(line) for line in lines[-12:])

    def _lines(self) -> list[dict[str, Any]]:
        found = []
        for text in self._log.read_text(errors="replace").splitlines():
            try:
                line = json.loads(text)
            except ValueError:
                line = {"event": text, "level": "unknown"}  # a traceback, or half a line of a killed process
            found.append(line if isinstance(line, dict) and "event" in line else {"event": text})
        return found


class Crew:
    """The members that are there now.

    Args:
        settings: of all of them.
        dice: choose the kinds of handlers, and who is killed.
        folder: for their logs.
    """

    def __init__(self, settings: Settings, dice: random.Random, folder: Path) -> None:
        self.members: list[Member] = []
        self._settings = settings
        self._dice = dice
        self._folder = folder
        self._started = 0

    def start(self, kind: str) -> None:
        """One more, with that kind of handler."""
        member = Member(self._settings, kind, self._folder / f"member-{self._started}-{kind}.log")
        self._started += 1
        self.members.append(member)

    def replace(self, member: Member) -> None:
        """Kill one, and start another one, of any kind, in its place at once."""
        member.kill()
        self.members.remove(member)
        self.start(self._dice.choice(KINDS))

    def said(self) -> list[int]:
        """How often each was assigned partitions, or has been rid of some."""
        return [sum(member.said()[what] for what in ("assigned", "revoked", "lost")) for member in self.members]

    def check(self) -> None:
        """See that nobody has ended by itself."""
        for member in self.members:
            if (status := member.status()) is not None:
                raise AssertionError(f"member {member.kind} ended with status {status}:\n{member.troubles()}")

    def stop(self) -> list[int]:
        """Ask all to stop; their exit statuses."""
        return [member.stop() for member in self.members]

    def kill(self) -> None:
        """End what is left."""
        for member in self.members:
            member.kill()

    def troubles(self) -> str:
        """What all of them have logged as a warning or worse."""
        return "\n".join(f"--- {member.kind} ({member.pid})\n{member.troubles()}" for member in self.members)
