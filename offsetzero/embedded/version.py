"""Which offsetzero wrote a data folder, so that an older one does not start on what it does not know."""

import importlib.metadata
import json
import re
from pathlib import Path
from typing import Any

from offsetzero.embedded.initdb import MAJOR
from offsetzero.embedded.lock import read_lock
from offsetzero.errors import ServerError

FORMAT = 1
"""Raised by one when an older offsetzero would misread the folder."""

FILE = "version.json"


def mine() -> dict[str, Any]:
    """What this offsetzero writes: its format, and the versions that wrote the data."""
    kafka = next(jar.version for jar in read_lock() if jar.artifact.startswith("kafka_"))
    own = importlib.metadata.version("offsetzero")
    return {"format": FORMAT, "offsetzero": own, "kafka": kafka, "postgresql": MAJOR}


def check(home: Path) -> None:
    """See that nothing newer wrote the folder.

    Raises:
        ServerError: a newer offsetzero, or one with a newer Kafka, did.
    """
    found = _read(home)
    own = mine()
    newer = [name for name in ("format", "kafka") if _numbers(found.get(name)) > _numbers(own[name])]
    if newer:
        theirs = ", ".join(f"{name} {found.get(name, '?')}" for name in own)
        ours = ", ".join(f"{name} {value}" for name, value in own.items())
        raise ServerError(
            f"{home} was written by a newer offsetzero ({theirs}), and this is older ({ours}); start it with that "
            "one again, or choose another folder with OFFSETZERO_HOME. Nothing was changed"
        )


def record(home: Path) -> None:
    """Leave this version in the folder."""
    own = mine()
    if _read(home) != own:
        path = home / FILE
        temporary = path.with_suffix(".tmp")
        temporary.write_text(json.dumps(own) + "\n")
        temporary.replace(path)


def _read(home: Path) -> dict[str, Any]:
    try:
        found = json.loads((home / FILE).read_text())
    except (FileNotFoundError, ValueError):  # a folder of before this file, or one that a crash cut short
        return {}
    return found if isinstance(found, dict) else {}


def _numbers(version: object) -> tuple[int, ...]:
    return tuple(int(number) for number in re.findall(r"\d+", str(version or 0)))
