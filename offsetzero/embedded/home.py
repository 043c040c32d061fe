"""One `offsetzero up` at a time for each data folder."""

import fcntl
import os
import time
from pathlib import Path
from types import TracebackType

from offsetzero import endpoints
from offsetzero.embedded import disk
from offsetzero.errors import ServerError

_ENDING_SECONDS = 40.0


class HomeLock:
    """A lock on a data folder, held by the process and by the guards of its children.

    It is the kernel's lock, so a dead owner's is gone by itself; as guards hold it too, it is gone only when their
    servers have ended and the data are free.

    Args:
        home: the folder; made when missing.

    Raises:
        ServerError: a living process holds it, which is named; or servers of a dead one do not end.
    """

    def __init__(self, home: Path) -> None:
        self.home = home
        self.path = endpoints.lock_file(home)
        _check_name(home)
        with disk.told(home):
            if not home.exists():
                home.mkdir(parents=True)
                home.chmod(0o711)  # PostgreSQL's account must pass; nobody can list it
            _check_owner(self.path)
            self._descriptor = os.open(self.path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
        try:
            self._acquire()
            with disk.told(home):
                os.truncate(self._descriptor, 0)
                os.pwrite(self._descriptor, f"{os.getpid()} {_start_of(os.getpid())}\n".encode(), 0)
                endpoints.file(home).unlink(missing_ok=True)  # what a killed one left
        except BaseException:
            os.close(self._descriptor)
            raise

    def fileno(self) -> int:
        """The descriptor that guards keep open."""
        return self._descriptor

    def release(self) -> None:
        """Let the folder go."""
        os.close(self._descriptor)

    def __enter__(self) -> "HomeLock":
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.release()

    def _acquire(self) -> None:
        deadline = time.monotonic() + _ENDING_SECONDS
        while not self._try():
            owner, alive = self._owner()
            if alive:
                raise ServerError(
                    f"{self.home} is in use by another offsetzero, process {owner}; stop that one "
                    f"(kill {owner}), or choose another folder with OFFSETZERO_HOME"
                )
            if time.monotonic() > deadline:
                raise ServerError(
                    f"{self.home}: servers of a dead offsetzero (process {owner}) are still running and do not end; "
                    f"look for processes that work in {self.home}"
                )
            time.sleep(0.1)

    def _try(self) -> bool:
        try:
            fcntl.flock(self._descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            return False
        return True

    def _owner(self) -> tuple[int | None, bool]:
        """The process that wrote itself into the file, and whether it lives: its number may be another's by now."""
        try:
            pid, _, start = os.pread(self._descriptor, 64, 0).decode().strip().partition(" ")
            return int(pid), _alive(int(pid)) and start in ("", _start_of(int(pid)))
        except ValueError:
            return None, False


def _check_name(home: Path) -> None:
    try:
        os.fsencode(home).decode("utf-8")
    except UnicodeDecodeError:
        raise ServerError(f"the name of the data folder {home!a} is not UTF-8; choose another") from None


def _check_owner(lock: Path) -> None:
    """Root could use anybody's folder, and would leave files in it that its owner cannot write."""
    if os.geteuid() == 0 and lock.exists() and lock.stat().st_uid != 0:
        raise ServerError(
            f"the data in {lock.parent} belong to user {lock.stat().st_uid}; run as that user, or choose another "
            "folder with OFFSETZERO_HOME"
        )


def _start_of(pid: int) -> str:
    """When a process started, in the kernel's ticks (Linux); the same number again is another process."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[19]
    except (OSError, IndexError):
        return ""


def _alive(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        return True
    return True
