"""PostgreSQL refuses to run as root: the unprivileged account it gets instead, and the folders this one may reach."""

import os
import pwd
import shutil
import stat
import tempfile
from pathlib import Path

from offsetzero.errors import ServerError

SYSTEM_FOLDER = Path("/var/lib/offsetzero")
"""Where root keeps what the account must reach."""

_FIRST_ID = 59_432  # a number above what systems give to people and services; it needs no entry in /etc/passwd


def is_root() -> bool:
    """Whether this process is root's."""
    return os.geteuid() == 0


def choose(folder: Path) -> int:
    """The user (and group) id for servers whose data are in `folder`: its owner's if it has one, else an unused id."""
    if folder.exists() and folder.stat().st_uid != 0:
        return folder.stat().st_uid
    for number in range(_FIRST_ID, _FIRST_ID + 100):
        try:
            pwd.getpwuid(number)
        except KeyError:
            return number
    raise ServerError("no unused user id for PostgreSQL; run as an ordinary user instead of root")


def named() -> int:
    """An unprivileged account with a name, which `initdb` insists on.

    Raises:
        ServerError: the system has none.
    """
    try:
        return pwd.getpwnam("nobody").pw_uid
    except KeyError:
        raise ServerError(
            "PostgreSQL does not run as root, and there is no account `nobody` to run it as; run as an ordinary user"
        ) from None


def reachable(path: Path) -> bool:
    """Whether every user may pass through `path` and all folders above it."""
    path = path.resolve()
    while not path.exists():
        path = path.parent
    return all(folder.stat().st_mode & stat.S_IXOTH for folder in (path, *path.parents))


def make_passable(folder: Path) -> None:
    """Make the folder, and what is missing above it, so that the account may pass, whatever the umask.

    Raises:
        ServerError: a folder that is there already does not let it pass; those are not ours to open.
    """
    for path in reversed([folder, *folder.parents]):
        if not path.exists():
            path.mkdir(exist_ok=True)
            path.chmod(0o755)
    if not reachable(folder):
        raise ServerError(
            f"PostgreSQL runs under an unprivileged account, which may not pass to {folder}; "
            "let others pass (chmod o+x) or choose another OFFSETZERO_HOME"
        )


def give(folder: Path, user: int) -> None:
    """Make a tree that we made ourselves the account's own."""
    for root, folders, files in os.walk(folder):
        for name in [".", *folders, *files]:
            os.chown(Path(root) / name, user, user, follow_symlinks=False)


def copy_programs(source: Path, name: str) -> Path:
    """A copy of a server's programs that the account may run but not change; made once.

    Raises:
        ServerError: it cannot be written.
    """
    target = SYSTEM_FOLDER / "programs" / name
    if target.exists():
        return target
    try:
        make_passable(target.parent)
        temporary = Path(tempfile.mkdtemp(prefix=".copy-", dir=target.parent))
        try:
            ignored = shutil.ignore_patterns("include", "*.a", "pkgconfig", "man", "doc")
            shutil.copytree(source, temporary, symlinks=True, ignore=ignored, dirs_exist_ok=True)
            for root, folders, files in os.walk(temporary):
                for path in [Path(root), *(Path(root) / item for item in [*folders, *files])]:
                    if not path.is_symlink():
                        runs = path.is_dir() or path.stat().st_mode & stat.S_IXUSR
                        path.chmod(0o755 if runs else 0o644)
            temporary.rename(target)
        except OSError:
            shutil.rmtree(temporary, ignore_errors=True)
            if not target.exists():  # else another process was faster
                raise
    except OSError as error:
        raise ServerError(
            f"PostgreSQL's programs cannot be copied to {target}: {error}; run as an ordinary user"
        ) from error
    return target
