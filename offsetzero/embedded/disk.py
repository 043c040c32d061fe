"""Folders that cannot be written: no space, no permission, a read-only disk; said so that a person can act."""

import errno
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from offsetzero.errors import ServerError

NEEDED = 64 * 1024 * 1024
"""Bytes that must be free before servers start: a new home takes 50 MB."""

_FULL = frozenset({errno.ENOSPC, errno.EDQUOT, errno.EFBIG})
_SAID_WHEN_FULL = ("No space left on device", "Disk quota exceeded", "File too large")

_NEXT_TO_NOTHING = 1024 * 1024


def free(folder: Path) -> int:
    """Bytes that this user may still write to the disk of a folder, which need not exist yet."""
    return shutil.disk_usage(_nearest(folder)).free


def require(folder: Path, needed: int = NEEDED) -> None:
    """See that there is room, before a server finds out in the middle of a file.

    Raises:
        ServerError: less than `needed` bytes are free on the folder's disk.
    """
    left = free(folder)
    if left < needed:
        raise ServerError(
            f"{folder}: only {left / 1e6:.0f} MB are free on its disk, and offsetzero wants {needed / 1e6:.0f} MB "
            "to start; free some, or choose a folder on another disk with OFFSETZERO_HOME"
        )


def is_full(error: BaseException) -> bool:
    """Whether a write failed for want of space: the disk, a quota, or the process's limit on files."""
    return isinstance(error, OSError) and error.errno in _FULL


def hint(said: str, folder: Path) -> str:
    """What to do about a server's last words when they are of a full disk, as an own sentence; else nothing.

    On a full disk a server may be unable to log why it ends; so the disk is looked at, too.
    """
    reason = next((words for words in _SAID_WHEN_FULL if words in said), None)
    if reason is None and free(folder) < _NEXT_TO_NOTHING:
        reason = _SAID_WHEN_FULL[0]
    if reason is None:
        return ""
    return (
        f"\n{reason}: {_free_mb(folder)} MB are free on the disk of {folder}. Free some (or lift the quota or "
        "`ulimit -f`) and start again; what was acknowledged is kept"
    )


@contextmanager
def told(folder: Path, variable: str = "OFFSETZERO_HOME") -> Iterator[None]:
    """Turn an error of a write into a folder into a sentence; other errors pass unchanged.

    Args:
        folder: what is written to, for errors that name no file.
        variable: what chooses another folder.

    Raises:
        ServerError: no space, no permission, or a read-only disk.
    """
    try:
        yield
    except OSError as error:
        explained = explain(error, folder, variable)
        if explained is None:
            raise
        raise ServerError(explained) from error


def explain(error: OSError, folder: Path, variable: str = "OFFSETZERO_HOME") -> str | None:
    """What went wrong and what to do; None for an error that is not about writing files."""
    path = Path(str(error.filename)) if error.filename else folder
    another = f"choose another folder with {variable}"
    if is_full(error):
        return (
            f"{path} cannot be written: {error.strerror}; {_free_mb(path)} MB are free on its disk. "
            f"Free some, or {another}"
        )
    if error.errno == errno.EROFS:
        return f"{path} cannot be written: it is on a read-only disk; {another}"
    if error.errno in (errno.EACCES, errno.EPERM):
        return f"{path} cannot be used by this user: {error.strerror}{_owner(path)}; run as its owner, or {another}"
    if error.errno in (errno.ENOTDIR, errno.EEXIST, errno.EISDIR, errno.ENAMETOOLONG, errno.ELOOP):
        return f"{path} cannot be used: {error.strerror}; {another}"
    return None


def _free_mb(folder: Path) -> str:
    try:
        return f"{free(folder) / 1e6:.0f}"
    except OSError:
        return "?"


def _owner(path: Path) -> str:
    try:
        nearest = _nearest(path)
        return f" ({nearest} belongs to {_name(nearest.stat().st_uid)})"
    except OSError:
        return ""


def _name(user: int) -> str:
    import pwd

    try:
        return pwd.getpwuid(user).pw_name
    except KeyError:
        return f"user {user}"


def _nearest(path: Path) -> Path:
    for folder in (path, *path.parents):
        try:
            folder.stat()
        except OSError:
            continue
        return folder
    return Path(path.anchor or ".")
