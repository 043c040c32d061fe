"""The pipeline as users run it: its processes, started by the command line, on the real servers."""

import json
import os
import signal
import subprocess
import sys
import threading
import time
from collections import defaultdict
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import httpx
import psycopg
import pytest

from offsetzero.settings import Settings
from offsetzero.topics import catalogue, cluster
from support import PATIENCE, wait_until


def environment(settings: Settings, **more: str) -> dict[str, str]:
    """The environment that makes a child process read these settings."""
    return {
        **os.environ,
        "PYTHONUNBUFFERED": "1",
        "OFFSETZERO_HOME": str(settings.home),
        "OFFSETZERO_DATABASE_URL": settings.database_url.get_secret_value(),
        "OFFSETZERO_KAFKA__BOOTSTRAP_SERVERS": settings.kafka.bootstrap_servers,
        "OFFSETZERO_KAFKA__NAMESPACE": settings.kafka.namespace,
        "OFFSETZERO_RETRY__DELAYS": json.dumps(settings.retry.delays),
        "OFFSETZERO_WEBHOOKS__DELAYS": json.dumps(settings.webhooks.delays),
        **more,
    }


class Process:
    """One `offsetzero …` process; its log is kept in a file."""

    def __init__(self, arguments: list[str], env: dict[str, str], log: Path, *, files: int | None = None) -> None:
        self.log_file = log
        command = [sys.executable, "-m", "offsetzero", *arguments]
        if files is not None:  # the soft limit of open files that it begins with
            command = ["sh", "-c", f'ulimit -Sn {files}; exec "$@"', "sh", *command]
        with log.open("ab") as output:
            self.child = subprocess.Popen(command, env=env, stdout=output, stderr=output)

    @property
    def log(self) -> str:
        return self.log_file.read_text(errors="replace")

    @property
    def lines(self) -> list[dict[str, Any]]:
        """The lines of its log that are whole."""
        return [json.loads(line) for line in self.log.splitlines() if line.startswith("{") and line.endswith("}")]

    def await_line(self, event: str, deadline: float = PATIENCE) -> dict[str, Any]:
        """Wait for a line of the log; a process that ended meanwhile fails the test with its log."""

        def look() -> dict[str, Any] | None:
            found = next((line for line in self.lines if line["event"] == event), None)
            assert found or self.child.poll() is None, f"it ended with {self.child.returncode}:\n{self.log}"
            return found

        return wait_until(look, deadline, what=f"{event!r} in {self.log_file.name}") or {}

    def kill(self) -> None:
        """As `kill -9`."""
        self.child.kill()
        self.child.wait()

    def stop(self, deadline: float = PATIENCE) -> int:
        """SIGTERM; returns the exit status."""
        if self.child.poll() is None:
            self.child.send_signal(signal.SIGTERM)
        return self.child.wait(deadline)


class Pipeline:
    """Starts processes of the pipeline for one test, and talks to its API."""

    def __init__(self, settings: Settings, folder: Path) -> None:
        self.settings = settings
        self.folder = folder
        self.processes: list[Process] = []
        self.client = httpx.Client()

    def start(self, *arguments: str, **env: str) -> Process:
        name = "-".join(arguments).replace(":", "-").replace("/", "-")
        process = Process(list(arguments), environment(self.settings, **env), self.folder / f"{name}.log")
        self.processes.append(process)
        return process

    def start_intake(self, **env: str) -> None:
        """The API and the relay, and a client with a key of the tenant `acme`."""
        from offsetzero.store.tenants import create_key

        api = self.start("api", "--port", "0", **env)
        self.start("relay", **env)
        with psycopg.connect(self.settings.database_url.get_secret_value()) as connection:
            key = create_key(connection, "acme")
        port = api.await_line("api listens")["port"]
        self.client = httpx.Client(
            base_url=f"http://127.0.0.1:{port}", headers={"Authorization": f"Bearer {key}"}, timeout=30
        )

    def upload(self, name: str, content: bytes, content_type: str = "text/plain") -> dict[str, Any]:
        answer = self.client.post("/documents", files={"file": (name, content, content_type)})
        assert answer.status_code == 202, answer.text
        body: dict[str, Any] = answer.json()
        return body

    def run(self, run_id: str) -> dict[str, Any]:
        body: dict[str, Any] = self.client.get(f"/runs/{run_id}").json()
        return body

    def await_run(self, run_id: str, deadline: float = 60) -> dict[str, Any]:
        """Wait until a run has ended."""
        return (
            wait_until(
                lambda: run if (run := self.run(run_id))["status"] in ("succeeded", "failed") else None,
                deadline,
                what=f"the end of run {run_id}",
            )
            or {}
        )

    def close(self) -> None:
        self.client.close()
        for process in self.processes:
            if process.child.poll() is None:
                process.kill()


@pytest.fixture
def pipeline(settings: Settings, tmp_path: Path) -> Iterator[Pipeline]:
    """A pipeline with no process yet; its topics exist."""
    cluster.ensure(settings, catalogue.declared(settings))
    made = Pipeline(settings, tmp_path)
    yield made
    made.close()


class Provider:
    """A real HTTP server in place of an LLM endpoint.

    Args:
        answer: given the request's body and which call for that document this is (from 1): a status, headers.
    """

    def __init__(self, answer: Callable[[str, int], tuple[int, dict[str, str]]]) -> None:
        calls: dict[str, list[float]] = defaultdict(list)
        lock = threading.Lock()

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                body = json.loads(self.rfile.read(int(self.headers["content-length"])))
                text = body["messages"][-1]["content"]
                word = text.split()[0]
                with lock:
                    calls[word].append(time.time())
                    number = len(calls[word])
                status, headers = answer(word, number)
                content = json.dumps(
                    {"model": "test", "choices": [{"message": {"content": f"about {word}"}}], "usage": {}}
                ).encode()
                self.send_response(status)
                for name, value in {**headers, "content-length": str(len(content))}.items():
                    self.send_header(name, value)
                self.end_headers()
                self.wfile.write(content)

            def log_message(self, *_arguments: object) -> None:
                pass

        self.calls = calls
        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self._server.server_port}/v1"
        self._thread = threading.Thread(target=self._server.serve_forever, daemon=True)
        self._thread.start()

    def close(self) -> None:
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()
