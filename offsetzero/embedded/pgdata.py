"""Where PostgreSQL's data are, and what must be so before its server can start on them."""

import hashlib
import os
import shutil
from pathlib import Path

from offsetzero.embedded import accounts, initdb
from offsetzero.errors import ServerError

BELONGS_TO = "belongs-to"
"""The file that names the home of data that are kept outside it."""


def place(folder: Path) -> Path:
    """The folder of a server's data: `folder`, unless root's server could not reach it there."""
    if not accounts.is_root() or accounts.reachable(folder):
        return folder
    digest = hashlib.sha256(os.fsencode(folder.resolve())).hexdigest()[:16]
    return accounts.SYSTEM_FOLDER / f"postgres-{digest}"


def prepare(home: Path, programs: Path, password_file: Path, *, user: int | None, superuser: str) -> None:
    """Make the cluster if there is none, and see that the server can start on it.

    Args:
        home: as `place` gives it; made when missing.
        programs: the folder with `bin/postgres`.
        password_file: where the password is kept.
        user: the account of the server; None for this process's.
        superuser: the database's superuser.

    Raises:
        ServerError: data of another version, without their password, or a cluster that cannot be made.
    """
    if user is None:
        home.mkdir(parents=True, exist_ok=True)
    else:
        accounts.make_passable(home)
    data = home / "data"
    _remove_unfinished(home)
    version = data / "PG_VERSION"
    if not version.exists():
        initdb.make_cluster(programs, data, password_file, user=user, superuser=superuser)
    elif version.read_text().strip() != initdb.MAJOR:
        raise ServerError(
            f"{data} was made by PostgreSQL {version.read_text().strip()}, and this is {initdb.MAJOR}; "
            "dump it with the old version and restore it, or choose another OFFSETZERO_HOME"
        )
    if not password_file.exists():
        raise ServerError(
            f"{password_file} is missing, so the data in {data} cannot be opened; "
            "restore it, or begin with nothing: offsetzero up --fresh"
        )
    _repair_lock_file(data)


def _remove_unfinished(home: Path) -> None:
    """What an `initdb` that was killed left; we hold the lock on the home."""
    for left in home.glob(".initdb-*"):
        shutil.rmtree(left, ignore_errors=True)


def _repair_lock_file(data: Path) -> None:
    """Remove the lock file of a dead server when its process id now belongs to another program.

    PostgreSQL removes a dead one's itself, unless an unrelated process of the same user has got its id.
    """
    path = data / "postmaster.pid"
    try:
        pid = int(path.read_text().splitlines()[0])
        command = Path(f"/proc/{pid}/cmdline").read_bytes()
    except (OSError, ValueError, IndexError):
        return
    if b"postgres" not in command:
        path.unlink(missing_ok=True)
