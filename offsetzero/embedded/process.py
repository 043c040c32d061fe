"""Child processes that cannot outlive their owner."""

import contextlib
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

from offsetzero.errors import ServerError

_GUARD = Path(__file__).with_name("guard.py")


class Child:
    """A running program under a guard (see `offsetzero.embedded.guard`); it ends with its owner.

    Args:
        name: what it is, for messages.
        argv: the program's absolute path and its arguments.
        log: the file that its output is appended to.
        env: its environment; by default this process's.
        cwd: its working folder.
        user: user and group id to drop to (only for root).
        stop_signal: how it is asked to stop.
        orphan_signal: what it gets when the guard itself is killed (Linux).
        grace: seconds between the stop signal and SIGKILL.
        hold: descriptors that the guard keeps open until the child is gone, such as a lock on its data.

    Raises:
        ServerError: it cannot be started.
    """

    def __init__(
        self,
        name: str,
        argv: Sequence[str],
        *,
        log: Path,
        env: Mapping[str, str] | None = None,
        cwd: Path | None = None,
        user: int | None = None,
        stop_signal: signal.Signals = signal.SIGTERM,
        orphan_signal: signal.Signals = signal.SIGKILL,
        grace: float = 15.0,
        hold: Sequence[int] = (),
    ) -> None:
        self.name = name
        self.log = log
        self._grace = grace
        spec = {
            "owner": os.getpid(),
            "argv": list(argv),
            "cwd": None if cwd is None else str(cwd),
            "user": user,
            "stop_signal": int(stop_signal),
            "orphan_signal": int(orphan_signal),
            "grace": grace,
        }
        log.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
        with log.open("ab") as output:
            self.log_start = output.tell()
            self._guard = subprocess.Popen(
                [sys.executable, "-I", "-S", str(_GUARD), json.dumps(spec)],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=output,
                env=None if env is None else dict(env),
                pass_fds=tuple(hold),
                start_new_session=True,  # Ctrl-C reaches the owner only, which stops its children in order
            )
        assert self._guard.stdout is not None  # noqa: S101
        answer = self._guard.stdout.readline()
        self._guard.stdout.close()
        if not answer:
            self.stop()
            raise ServerError(f"{name} could not be started: {self.tail() or 'its guard died'}")
        self.pid = int(answer)

    def poll(self) -> int | None:
        """The exit status (128 + n for signal n), or None while it runs."""
        return self._guard.poll()

    def ask_to_stop(self) -> None:
        """Send the stop signal, without waiting."""
        if self._guard.stdin is not None:
            with contextlib.suppress(BrokenPipeError):
                self._guard.stdin.close()

    def stop(self) -> int:
        """Stop it, by force after the grace time, and return its exit status."""
        self.ask_to_stop()
        return self._guard.wait(self._grace + 30)

    def kill(self) -> int:
        """End it at once and return its exit status."""
        with contextlib.suppress(ProcessLookupError):
            if self.poll() is None:
                os.kill(self.pid, signal.SIGKILL)
        return self.stop()

    def tail(self, lines: int = 15) -> str:
        """The last lines that this run of it has written to its log."""
        return tail(self.log, lines, start=self.log_start)


def tail(path: Path, lines: int, *, start: int = 0) -> str:
    """The last lines of a log file, or an empty string when there are none."""
    try:
        with path.open("rb") as file:
            size = file.seek(0, os.SEEK_END)
            file.seek(max(start if start <= size else 0, size - 64 * 1024))
            text = file.read().decode(errors="replace")
    except OSError:
        return ""
    return "\n".join(text.splitlines()[-lines:])


def trim_log(path: Path, limit: int = 8 * 1024 * 1024) -> None:
    """Move a log file that has grown over `limit` bytes to `NAME.1`, in place of the one there."""
    with contextlib.suppress(FileNotFoundError):
        if path.stat().st_size > limit:
            path.replace(path.with_name(path.name + ".1"))


def wait_for(child: Child, ready: Callable[[], bool], *, timeout: float, what: str) -> None:
    """Wait until `ready()` is true.

    Raises:
        ServerError: the child ended, or was not ready within `timeout` seconds; with its last lines.
    """
    deadline = time.monotonic() + timeout
    while not ready():
        status = child.poll()
        if status is not None:
            raise ServerError(f"{what} ended with status {status} while it started")
        if time.monotonic() > deadline:
            raise ServerError(f"{what} was not ready within {timeout:.0f} s")
        time.sleep(0.03)
