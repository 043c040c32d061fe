"""Kafka and PostgreSQL for one run of the tests, shared by its workers: a process that lives while it has clients.

    python tests/servers.py SOCKET --servers=embedded|containers|external

Each worker connects to the Unix socket and keeps the connection; a line `kafka` or `postgres` is answered by
`{"ok": …}` or `{"error": …}`, and starts that server if it does not run. When the last connection is closed, by an
orderly end or by `kill -9`, everything is stopped and removed. Started by hand with `--keep`, it stays until
Ctrl-C, and test runs with OZ_TEST_SERVERS=SOCKET in their environment use it.
"""

import argparse
import json
import os
import shutil
import signal
import socket
import socketserver
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable
from pathlib import Path

from backends import Backend, Kind, make

_FIRST_CLIENT_WITHIN = 60.0  # seconds


class Servers:
    """The two servers, each started when it is first asked for."""

    def __init__(self, backend: Backend) -> None:
        self._backend = backend
        self._locks = {"kafka": threading.Lock(), "postgres": threading.Lock()}
        self._answers: dict[str, dict[str, str]] = {}

    def get(self, name: str) -> dict[str, str]:
        """Where the server is, or why it is not."""
        with self._locks[name]:
            if name not in self._answers:
                try:
                    self._answers[name] = {"ok": self._backend.start(name)}
                except Exception as error:
                    notes = "\n".join(getattr(error, "__notes__", ()))
                    self._answers[name] = {"error": f"{type(error).__name__}: {error}\n{notes}".rstrip()}
            return self._answers[name]


class _Listener(socketserver.ThreadingUnixStreamServer):
    daemon_threads = True
    request_queue_size = 64

    def __init__(self, path: str, servers: Servers) -> None:
        self.servers = servers
        self.clients = 0
        self.had_clients = False
        self.changed = threading.Condition()
        super().__init__(path, _Client)


class _Client(socketserver.StreamRequestHandler):
    server: _Listener

    def handle(self) -> None:
        with self.server.changed:
            self.server.clients += 1
            self.server.had_clients = True
        try:
            for line in self.rfile:
                answer = self.server.servers.get(line.decode().strip())
                self.wfile.write(json.dumps(answer).encode() + b"\n")
        except OSError:
            pass  # the client is gone
        finally:
            with self.server.changed:
                self.server.clients -= 1
                self.server.changed.notify_all()


def serve(path: Path, kind: Kind, *, keep: bool) -> None:
    """Serve until the last client is gone (or, with `keep`, until a signal)."""
    stop = threading.Event()
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, lambda _number, _frame: stop.set())
    folder = Path(tempfile.mkdtemp(prefix="offsetzero-tests-"))
    folder.chmod(0o711)  # PostgreSQL's account must pass
    running = path.with_name(f"{os.getpid()}.running")
    running.touch()
    backend = make(kind, folder)
    listener = _Listener(str(path), Servers(backend))
    thread = threading.Thread(target=listener.serve_forever, daemon=True)
    thread.start()
    try:
        deadline = time.monotonic() + _FIRST_CLIENT_WITHIN
        while not stop.is_set():
            with listener.changed:
                listener.changed.wait(0.2)
                unused = not listener.clients and (listener.had_clients or time.monotonic() > deadline)
            if unused and not keep:
                break
    finally:
        path.unlink(missing_ok=True)
        listener.shutdown()
        backend.stop()
        shutil.rmtree(folder, ignore_errors=True)
        running.unlink(missing_ok=True)
        owner = os.environ.get("OZ_TEST_OWNER")
        if owner is not None and not Path(f"/proc/{owner}").exists():  # killed, so it cannot remove its folder
            shutil.rmtree(path.parent, ignore_errors=True)


class Connection:
    """A worker's hold on the shared servers."""

    def __init__(self, path: Path) -> None:
        self._socket = socket.socket(socket.AF_UNIX)
        self._socket.connect(str(path))
        self._file = self._socket.makefile("rwb")

    def ask(self, name: str) -> str:
        """Where the server `kafka` or `postgres` is; starts it."""
        self._file.write(name.encode() + b"\n")
        self._file.flush()
        line = self._file.readline()
        answer = json.loads(line) if line else {"error": "the servers' process ended; see its log"}
        if "error" in answer:
            raise RuntimeError(answer["error"])
        return str(answer["ok"])

    def close(self) -> None:
        """Let go."""
        self._file.close()
        self._socket.close()


def connect(path: Path, kind: Kind) -> Connection:
    """Connect to the process behind the socket, and start it when there is none. Call under a lock of the run."""
    try:
        return Connection(path)
    except OSError:
        path.unlink(missing_ok=True)
    log = path.with_suffix(".log")
    with log.open("ab") as output:
        process = subprocess.Popen(
            [sys.executable, __file__, str(path), f"--servers={kind}"],
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=output,
            start_new_session=True,
            env={name: value for name, value in os.environ.items() if not name.startswith("OFFSETZERO_")},
        )
    return _until(lambda: Connection(path), process, log)


def await_end(folder: Path) -> None:
    """Wait until the processes that were started for sockets in the folder have stopped their servers."""
    deadline = time.monotonic() + 30
    while any(folder.glob("*.running")) and time.monotonic() < deadline:
        time.sleep(0.05)


def _until(attempt: Callable[[], Connection], process: subprocess.Popen[bytes], log: Path) -> Connection:
    deadline = time.monotonic() + 30
    while True:
        try:
            return attempt()
        except OSError:
            if process.poll() is not None or time.monotonic() > deadline:
                raise RuntimeError(f"the tests' servers did not start:\n{log.read_text()}") from None
            time.sleep(0.02)


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("socket", type=Path)
    parser.add_argument("--servers", choices=list(Kind), type=Kind, default=Kind.EMBEDDED)
    parser.add_argument("--keep", action="store_true")
    arguments = parser.parse_args()
    if arguments.keep:
        print(f"export OZ_TEST_SERVERS={arguments.socket.absolute()}", flush=True)
    serve(arguments.socket, arguments.servers, keep=arguments.keep)
