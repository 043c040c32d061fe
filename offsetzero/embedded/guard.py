"""A small process that ends one child when its owner goes away, however it goes (`kill -9` too).

It is run as a script, isolated and without site-packages, by `offsetzero.embedded.process`. The owner holds the
other end of its standard input: when that closes, or the owner's process is gone, the child gets its stop signal
and, after a grace time, SIGKILL. On Linux the child is killed with the guard as well (PR_SET_PDEATHSIG).

It writes the child's process id on standard output and ends with the child's exit status (128 + n for signal n).
"""

import contextlib
import ctypes
import json
import os
import select
import signal
import sys
import time
from types import FrameType
from typing import Any

_PR_SET_PDEATHSIG = 1
_TICK = 0.5  # seconds between looks at the owner's process, for the case that somebody else inherited the pipe


def main() -> int:
    """Start the child that the first argument (JSON) describes, and watch it to its end."""
    spec: dict[str, Any] = json.loads(sys.argv[1])
    wake_read, wake_write = os.pipe()
    os.set_blocking(wake_read, False)
    os.set_blocking(wake_write, False)
    signal.set_wakeup_fd(wake_write, warn_on_full_buffer=False)
    asked: list[int] = []
    for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
        signal.signal(number, lambda signum, _frame: asked.append(signum))
    signal.signal(signal.SIGCHLD, _noted)
    guard = os.getpid()
    pid = os.fork()
    if pid == 0:
        _become(spec, guard)
    os.write(1, b"%d\n" % pid)
    os.close(1)
    return _watch(pid, spec, asked, wake_read)


def _noted(_signum: int, _frame: FrameType | None) -> None:
    """The wake-up descriptor has made the loop look already."""


def _become(spec: dict[str, Any], guard: int) -> None:
    """Turn this forked process into the child. Never returns."""
    try:
        signal.signal(signal.SIGPIPE, signal.SIG_DFL)  # Python ignores it, and exec would pass that on
        null = os.open(os.devnull, os.O_RDONLY)
        os.dup2(null, 0)
        os.dup2(2, 1)
        if spec["user"] is not None:
            os.setgroups([])
            os.setgid(spec["user"])
            os.setuid(spec["user"])
        if spec["cwd"] is not None:
            os.chdir(spec["cwd"])
        if sys.platform == "linux":  # after setuid, which would clear it
            ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, spec["orphan_signal"], 0, 0, 0)
            if os.getppid() != guard:  # it was killed before the call
                os._exit(1)
        os.execve(spec["argv"][0], spec["argv"], os.environ)  # noqa: S606
    except OSError as error:
        os.write(2, f"cannot start {spec['argv'][0]}: {error}\n".encode())
    finally:
        os._exit(127)


def _watch(pid: int, spec: dict[str, Any], asked: list[int], wake: int) -> int:
    deadline: float | None = None
    sources = [0, wake]
    while True:
        done, status = os.waitpid(pid, os.WNOHANG)
        if done:
            code = os.waitstatus_to_exitcode(status)
            return code if code >= 0 else 128 - code
        now = time.monotonic()
        if deadline is None and (asked or 0 not in sources or os.getppid() != spec["owner"]):
            deadline = now + spec["grace"]
            os.kill(pid, spec["stop_signal"])
        if deadline is not None and now >= deadline:
            os.kill(pid, signal.SIGKILL)
        with contextlib.suppress(InterruptedError):
            ready, _, _ = select.select(sources, [], [], _TICK)
            if 0 in ready and not os.read(0, 4096):
                sources.remove(0)
            if wake in ready:
                os.read(wake, 4096)


if __name__ == "__main__":
    sys.exit(main())
