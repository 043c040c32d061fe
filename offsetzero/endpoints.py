"""What a running `offsetzero up` leaves in its data folder, so that commands in other terminals find its servers."""

import fcntl
import json
import os
from collections.abc import Mapping
from pathlib import Path


def file(home: Path) -> Path:
    """Where the endpoints are. They are true only while the `up` that wrote them runs."""
    return home / "endpoints.json"


def lock_file(home: Path) -> Path:
    """The file that a running `up` has locked (flock), and that holds its process id."""
    return home / "up.lock"


def write(home: Path, found: Mapping[str, str]) -> None:
    """Leave endpoints (names as in the environment) for other commands; readable by the owner only."""
    path = file(home)
    temporary = path.with_suffix(".tmp")
    descriptor = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
    with os.fdopen(descriptor, "w") as opened:
        json.dump(dict(found), opened)
    temporary.replace(path)


def read(home: Path) -> dict[str, str]:
    """The endpoints of the `up` that runs in `home`; empty when none does."""
    try:
        data = json.loads(file(home).read_text())
    except (OSError, ValueError):
        return {}
    if not isinstance(data, dict) or not _is_up(home):
        return {}
    return {str(name): str(value) for name, value in data.items()}


def none(home: Path) -> str:
    """Why `read` finds nothing, and what to do, as a part of a sentence."""
    if file(home).exists():
        return f"the last `offsetzero up` in {home} died; start it again"
    return f"no `offsetzero up` is running in {home}; start one"


def _is_up(home: Path) -> bool:
    """Whether an `up` runs in `home`: one that was killed leaves its endpoints behind, but no lock.

    The guards of its servers hold the lock, too, until those have ended; so its process must live as well.
    """
    try:
        with lock_file(home).open() as opened:
            try:
                fcntl.flock(opened, fcntl.LOCK_SH | fcntl.LOCK_NB)  # let go at once, by closing the file
                return False
            except BlockingIOError:
                os.kill(int(opened.read().partition(" ")[0]), 0)
    except PermissionError:  # another user's
        return True
    except (OSError, ValueError):
        return False
    return True
