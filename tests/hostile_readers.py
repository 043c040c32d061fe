"""Readers that do what a hostile file can make a real one do. Loaded by the processes of a pool under test."""

import ctypes
import os
import signal
import socket
import subprocess
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import IO, Any

from offsetzero.consumers.groups.documents.pages import Extracted, Page, Reader
from offsetzero.consumers.groups.extraction.worker import ANSWER
from offsetzero.retry.failures import Permanent, Poison


def _says(text: str) -> Extracted:
    return Extracted([Page(1, text, "test")])


def _text(file: IO[bytes]) -> Extracted:
    return _says(file.read().decode())


def _slow_text(file: IO[bytes]) -> Extracted:
    time.sleep(0.3)
    return _text(file)


def _spin(_file: IO[bytes]) -> Extracted:
    while True:
        pass


def _eat(_file: IO[bytes]) -> Extracted:
    eaten = []
    while True:
        eaten.append(bytearray(8 * 1024 * 1024))


def _eat_and_crash(_file: IO[bytes]) -> Extracted:
    """As native code does that cannot tell of a failed allocation."""
    eaten = []
    try:
        while True:
            eaten.append(bytearray(8 * 1024 * 1024))
    except MemoryError:
        os.abort()


def _starve(_file: IO[bytes]) -> Extracted:
    """Goes on with no memory left, as the end of three million nested elements does."""
    eaten: list[bytearray] = []
    for size in (1024 * 1024, 4096, 64):
        try:
            while True:
                eaten.append(bytearray(size))
        except MemoryError:
            pass
    while True:
        time.sleep(0.01)


def _fork(_file: IO[bytes]) -> Extracted:
    if os.fork() == 0:
        os.setsid()
        time.sleep(3600)
    return _says("forked")


def _fork_many(_file: IO[bytes]) -> Extracted:
    """Leaves processes behind that are in no group or session of its own; says which."""
    left = []
    for _ in range(5):
        pid = os.fork()
        if pid == 0:
            os.setsid()
            time.sleep(3600)
        left.append(str(pid))
    return _says(" ".join(left))


def _connect(file: IO[bytes]) -> Extracted:
    with socket.create_connection(("127.0.0.1", int(file.read())), timeout=2):
        return _says("connected")


def _write(file: IO[bytes]) -> Extracted:
    path = Path(file.read().decode())
    with path.open("wb") as opened:
        opened.write(b"x")
    return _says("written")


def _threads(file: IO[bytes]) -> Extracted:
    found: list[Extracted] = []
    thread = threading.Thread(target=lambda: found.append(_text(file)))
    thread.start()
    thread.join()
    return found[0]


def _close_and_hang(_file: IO[bytes]) -> Extracted:
    os.close(ANSWER)
    time.sleep(3600)
    return _says("")


def _lie(file: IO[bytes]) -> Extracted:
    os.write(ANSWER, file.read())
    os._exit(0)


def _flood(_file: IO[bytes]) -> Extracted:
    while True:
        os.write(ANSWER, bytes(1024 * 1024))


def _calls(function: Callable[..., Any], *arguments: Any) -> Reader:
    def read(_file: IO[bytes]) -> Extracted:
        function(*arguments)
        return _says("done")

    return read


def _fails(error: Exception) -> Reader:
    def read(_file: IO[bytes]) -> Extracted:
        raise error

    return read


def _environment(_file: IO[bytes]) -> Extracted:
    return _says(" ".join(os.environ))


def _descriptors(_file: IO[bytes]) -> Extracted:
    return _says(" ".join(map(str, sorted(int(path.name) for path in Path("/proc/self/fd").iterdir()))))


READERS: dict[str, Reader] = {
    "text": _text,
    "slow-text": _slow_text,
    "segfault": _calls(ctypes.string_at, 0),
    "abort": _calls(os.abort),
    "exit": _calls(os._exit, 7),
    "kill-group": _calls(os.kill, 0, signal.SIGKILL),
    "killed-itself": lambda _file: (os.kill(os.getpid(), signal.SIGKILL), _says(""))[1],
    "kill-owner": lambda _file: (os.kill(os.getppid(), signal.SIGKILL), _says(""))[1],
    "hang": _calls(time.sleep, 3600),
    "spin": _spin,
    "eat": _eat,
    "eat-and-crash": _eat_and_crash,
    "starve": _starve,
    "fork": _fork,
    "fork-many": _fork_many,
    "exec": _calls(subprocess.run, ["true"]),
    "replace": _calls(os.execv, "/bin/true", ["true"]),
    "connect": _connect,
    "socket": _calls(socket.socket),
    "write": _write,
    "threads": _threads,
    "close-and-hang": _close_and_hang,
    "lie": _lie,
    "flood": _flood,
    "permanent": _fails(Permanent("no-pages", "it has none")),
    "poison": _fails(Poison("corrupt", "it is broken")),
    "fault": _fails(ZeroDivisionError("oh no")),
    "environment": _environment,
    "descriptors": _descriptors,
}
