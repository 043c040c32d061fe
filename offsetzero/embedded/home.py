"""One `offsetzero up` at a time for each data folder."""

import fcntl
import os
import time
from pathlib import Path
from types import TracebackType

from offsetzero import endpoints
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
        try:
            if not home.exists():
                home.mkdir(parents=True)
                home.chmod(0o711)  # PostgreSQL's account must pass; nobody can list it
            self._descriptor = os.open(self.path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
        except OSError as error:
            raise ServerError(
                f"the data folder {home} cannot be used: {error.strerror}; choose another with OFFSETZERO_HOME"
            ) from error
        try:
            self._acquire()
        except BaseException:
            os.close(self._descriptor)
            raise
        os.truncate(self._descriptor, 0)
        os.pwrite(self._descriptor, f"{os.getpid()}\n".encode(), 0)
        endpoints.file(home).unlink(missing_ok=True)  # what a killed one left

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
            owner = self._owner()
            if owner is not None and _alive(owner):
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

    def _owner(self) -> int | None:
        try:
            return int(os.pread(self._descriptor, 32, 0))
        except ValueError:
            return None


def _alive(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        return True
    return True
