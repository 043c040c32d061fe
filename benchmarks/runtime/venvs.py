"""The environments of the contestants: one each, with pinned versions, made at their first use and kept."""

import importlib.metadata
import subprocess
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

_SECONDS = 300.0
_SAME = ("confluent-kafka", "fastavro", "psycopg", "psycopg-binary")


@dataclass(frozen=True)
class Packages:
    """What one environment holds: these, and what offsetzero has of the client, fastavro and psycopg."""

    pins: Sequence[str]
    options: Sequence[str] = ()


PEERS: Mapping[str, Packages] = {
    "faststream": Packages(["faststream[confluent]==0.7.8"]),
    "quixstreams": Packages(["quixstreams==3.28.1", "confluent-kafka==2.12.2"]),  # it wants a client below 2.13
    "arroyo": Packages(["sentry-arroyo==2.48.0"]),
    "faust": Packages(["faust-streaming==0.15.3", "aiokafka[lz4]==0.14.0"]),
    # Declared for Python 3.12 and up, but nothing in its code needs that.
    "pyrallel": Packages(["pyrallel-consumer==1.0.0"], ["--ignore-requires-python"]),
    "py-spy": Packages(["py-spy==0.4.3"]),
}


class NotInstalled(Exception):
    """A contestant that must be left out; the message says why."""


class Venvs:
    """Environments in a folder.

    Args:
        folder: made when missing; what is in it is used again while its pins are the same.
    """

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._failed: dict[str, str] = {}
        self._used: set[str] = set()

    def python(self, name: str) -> Path:
        """The interpreter of an environment.

        Raises:
            NotInstalled: it cannot be made; asked again, it is not tried again.
        """
        if name in self._failed:
            raise NotInstalled(self._failed[name])
        home = self._folder / name
        lines = "\n".join([sys.version, *_pins(PEERS[name]), *PEERS[name].options])
        ready = home / "pins.txt"
        if not ready.exists() or ready.read_text() != lines:
            try:
                _make(home, PEERS[name])
            except (OSError, subprocess.SubprocessError) as error:
                said = getattr(error, "stderr", "") or str(error)
                self._failed[name] = said.strip().splitlines()[-1][:300]
                raise NotInstalled(self._failed[name]) from error
            ready.write_text(lines)
        self._used.add(name)
        return home / "bin" / "python"

    def versions(self) -> dict[str, dict[str, str]]:
        """The pinned packages of each environment that was used."""
        return {name: self._versions(name) for name in PEERS if name in self._used}

    def _versions(self, name: str) -> dict[str, str]:
        listed = _run(str(self.python(name)), "-m", "pip", "list", "--format=freeze")
        found = dict(line.split("==", 1) for line in listed.splitlines() if "==" in line)
        pins = [pin.split("==")[0].split("[")[0] for pin in _pins(PEERS[name])]
        return {pin: found.get(pin, "?") for pin in pins}


def _pins(packages: Packages) -> list[str]:
    own = {pin.split("==")[0] for pin in packages.pins}
    return [*packages.pins, *(f"{name}=={importlib.metadata.version(name)}" for name in _SAME if name not in own)]


def _make(home: Path, packages: Packages) -> None:
    print(f"installing {packages.pins[0]} into {home}", file=sys.stderr, flush=True)
    _run(sys.executable, "-m", "venv", "--clear", str(home))
    _run(str(home / "bin/python"), "-m", "pip", "install", "-q", *packages.options, *_pins(packages))


def _run(*command: str) -> str:
    return subprocess.run(command, check=True, capture_output=True, text=True, timeout=_SECONDS).stdout
