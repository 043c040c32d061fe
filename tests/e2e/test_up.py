"""`offsetzero up` and `offsetzero demo`, as a person runs them."""

import json
import os
import signal
import socket
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import httpx
import psycopg
import pytest
from running_up import addresses

from machine import autogroup
from offsetzero.settings import Settings
from support import wait_until

ROOT = Path(__file__).parents[2]
PDF = ROOT / "examples" / "documents" / "handbook.pdf"
pytestmark = pytest.mark.skipif(not Path("/proc/self/environ").exists(), reason="looks at processes through /proc")
Start = Callable[..., "subprocess.Popen[str]"]


@pytest.fixture
def home() -> Iterator[Path]:
    """A folder that PostgreSQL's account may pass to, unlike pytest's own."""
    with tempfile.TemporaryDirectory(prefix="oz-home-") as folder:
        Path(folder).chmod(0o755)
        yield Path(folder)


@pytest.fixture
def up(home: Path) -> Iterator[Start]:
    """Starts `offsetzero up --json` in the folder; all of them are stopped at the end."""
    started: list[subprocess.Popen[str]] = []

    def start(*arguments: str) -> "subprocess.Popen[str]":
        process = subprocess.Popen(
            [sys.executable, "-m", "offsetzero", "up", "--json", "--home", str(home), *arguments],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        started.append(process)
        return process

    yield start
    for process in started:
        process.terminate()
        process.communicate(timeout=60)


def offsetzero(home: Path, *arguments: str) -> "subprocess.CompletedProcess[str]":
    return subprocess.run(
        [sys.executable, "-m", "offsetzero", *arguments],
        capture_output=True,
        text=True,
        env={**os.environ, "OFFSETZERO_HOME": str(home)},
        timeout=60,
        check=False,
    )


def processes_of(text: str, name: str = "") -> dict[int, str]:
    """Running processes with a text in their arguments or environment, and a name in their arguments."""
    found = {}
    for folder in Path("/proc").glob("[0-9]*"):
        try:
            arguments = (folder / "cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace")
            environment = (folder / "environ").read_bytes().decode(errors="replace")
        except OSError:  # ended meanwhile
            continue
        if text in arguments + environment and name in arguments and int(folder.name) != os.getpid():
            found[int(folder.name)] = arguments
    return found


def assert_that_the_api_goes_first(home: Path) -> None:
    """Within a session, and between sessions, where those are groups."""
    for pid, line in processes_of(str(home), "-m offsetzero ").items():
        if "guard.py" in line or " up " in line:
            continue
        nice = {"api": 0, "relay": 10}.get(line.split()[3], 19 if "groups run usage" in line else 15)
        assert os.getpriority(os.PRIO_PROCESS, pid) == min(19, os.nice(0) + nice), line
        assert autogroup(pid) in (nice, None), line


def client(found: dict[str, Any]) -> httpx.Client:
    return httpx.Client(base_url=found["api"], headers={"Authorization": f"Bearer {found['api_key']}"})


def answers(url: str) -> bool:
    try:
        return httpx.get(url).status_code == 200
    except httpx.HTTPError:
        return False


def usage(http: httpx.Client) -> tuple[Any, ...]:
    answer = http.get("/usage")
    if answer.status_code != 200:
        assert answer.json()["type"] == "urn:offsetzero:problem:usage-unavailable"
        return ()
    total = answer.json()["total"]
    return total["uploaded"], total["bytes"], total["succeeded"], total["longest_seconds"]


def counted_in_sql(url: str) -> tuple[Any, ...]:
    """The same by the tables that decide, of a pipeline that had nothing but documents of one tenant.

    An event has its time in whole milliseconds, a row in microseconds.
    """
    with psycopg.connect(url) as connection:
        rows = connection.execute(
            "SELECT d.size_bytes, r.id, date_trunc('milliseconds', r.finished_at) FROM documents d "
            "JOIN runs r ON r.document_id = d.id WHERE r.status = 'succeeded'"
        ).fetchall()
    seconds = [round(finished.timestamp() - (run.int >> 80) / 1000, 3) for _, run, finished in rows]
    return len(rows), sum(size for size, _, _ in rows), len(rows), max(seconds)


def ended(http: httpx.Client, run_id: str) -> str | None:
    status = http.get(f"/runs/{run_id}").json()["status"]
    return status if status in ("succeeded", "failed") else None


@pytest.mark.timeout(240)
def test_up_works_survives_a_restart_and_refuses_a_second_one(home: Path, up: Start) -> None:
    first = up("--port", "0")
    found = addresses(first)
    with client(found) as http, PDF.open("rb") as file:
        answer = http.post("/documents", files={"file": ("handbook.pdf", file, "application/pdf")})
        assert answer.status_code == 202, answer.text
        run_id = answer.json()["run_id"]
        assert wait_until(lambda: ended(http, run_id), 60) == "succeeded"
        wanted = counted_in_sql(found["database"])
        wait_until(lambda: usage(http) == wanted, 90, what=f"usage as in the database: {wanted}")
    for url in found["metrics"].values():
        assert "python_info" in httpx.get(url).text, url
    assert_that_the_api_goes_first(home)

    (relay,) = (pid for pid, line in processes_of(str(home), "offsetzero relay").items() if "guard.py" not in line)
    os.kill(relay, signal.SIGKILL)  # it is started again
    wait_until(lambda: set(processes_of(str(home), "offsetzero relay")) - {relay})
    wait_until(lambda: answers(found["metrics"]["relay"]))

    listed = offsetzero(home, "groups", "list", "--json")  # finds the servers by the folder
    assert listed.returncode == 0, listed.stderr
    assert {"indexer", "summariser", "notifier"} <= {row["group"] for row in json.loads(listed.stdout)}

    second = offsetzero(home, "up", "--port", "0")
    assert second.returncode == 1
    assert f"in use by another offsetzero, process {first.pid}" in second.stderr

    first.send_signal(signal.SIGINT)
    assert first.wait(60) == 0
    assert not processes_of(str(home))
    assert not (home / "endpoints.json").exists()

    again = addresses(up("--port", "0"))
    assert again["api_key"] == found["api_key"]
    with client(again) as http:
        assert http.get(f"/runs/{run_id}").json()["status"] == "succeeded"
        assert http.get("/search", params={"q": "dead letters"}).json()["hits"]


@pytest.mark.timeout(120)
def test_up_that_is_killed_leaves_nothing_running_and_the_next_one_starts(home: Path, up: Start) -> None:
    first = up("--port", "0")
    addresses(first)
    assert len(processes_of(str(home))) >= 2
    first.kill()
    first.wait()
    listed = offsetzero(home, "groups", "list")
    assert listed.returncode == 1
    assert "died; start it again" in listed.stderr
    second = up("--port", "0")  # waits for what the dead one's guards are stopping, and mends what it left
    found = addresses(second)
    with psycopg.connect(found["database"]) as connection:
        assert connection.execute("SELECT count(*) FROM runs").fetchone() == (0,)
    second.kill()
    second.wait()
    wait_until(lambda: not processes_of(str(home)), 60, what="all processes of the folder end")


@pytest.mark.timeout(120)
def test_up_uses_the_servers_that_the_environment_names(
    home: Path, up: Start, settings: Settings, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OFFSETZERO_KAFKA__BOOTSTRAP_SERVERS", settings.kafka.bootstrap_servers)
    monkeypatch.setenv("OFFSETZERO_KAFKA__NAMESPACE", settings.kafka.namespace)
    monkeypatch.setenv("OFFSETZERO_DATABASE_URL", settings.database_url.get_secret_value())
    found = addresses(up("--port", "0"))
    assert found["kafka"] == settings.kafka.bootstrap_servers
    assert not (home / "kafka").exists()
    assert not (home / "postgres").exists()
    with client(found) as http, PDF.open("rb") as file:
        answer = http.post("/documents", files={"file": ("handbook.pdf", file, "application/pdf")})
        assert wait_until(lambda: ended(http, answer.json()["run_id"]), 60) == "succeeded"


@pytest.mark.timeout(120)
def test_what_up_proposes_works_when_it_is_pasted(
    home: Path, settings: Settings, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OFFSETZERO_KAFKA__BOOTSTRAP_SERVERS", settings.kafka.bootstrap_servers)
    monkeypatch.setenv("OFFSETZERO_KAFKA__NAMESPACE", settings.kafka.namespace)
    monkeypatch.setenv("OFFSETZERO_DATABASE_URL", settings.database_url.get_secret_value())
    monkeypatch.setenv("PATH", "/usr/local/bin:/usr/bin:/bin")
    monkeypatch.setenv("COLUMNS", "60")
    process = subprocess.Popen(
        [sys.executable, "-m", "offsetzero", "up", "--port", "0", "--home", str(home / "a folder")],
        stdout=subprocess.PIPE,
        text=True,
    )
    assert process.stdout is not None
    try:
        proposed = []
        for line in process.stdout:
            if "Running until" in line:
                break
            if line.startswith("  "):
                proposed.append(line.strip())
        assert len(proposed) == 6
        for command in proposed:
            done = subprocess.run(command, shell=True, capture_output=True, text=True, timeout=60, cwd="/", check=False)  # noqa: S602
            assert done.returncode == 0, (command, done.stderr)
            assert '"status":4' not in done.stdout, (command, done.stdout)
            assert done.stdout, command
    finally:
        process.send_signal(signal.SIGINT)
        process.communicate(timeout=60)


def test_up_on_a_taken_port_starts_nothing(home: Path) -> None:
    with socket.socket() as other:
        other.bind(("127.0.0.1", 0))
        other.listen()
        port = other.getsockname()[1]
        result = offsetzero(home, "up", "--port", str(port))
    assert result.returncode == 1
    assert f"port {port} on 127.0.0.1 is taken" in result.stderr
    assert "--port" in result.stderr
    assert "stopped" not in result.stdout
    assert not list(home.iterdir())


def test_up_tells_all_mistakes_of_the_environment_before_it_starts(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OFFSETZERO_API__PORT", "none")
    monkeypatch.setenv("OFFSETZERO_NONSENSE", "1")
    result = offsetzero(home, "up")
    assert result.returncode == 1
    assert "OFFSETZERO_API__PORT" in result.stderr
    assert "OFFSETZERO_NONSENSE" in result.stderr
    assert not list(home.iterdir())


@pytest.mark.timeout(240)
def test_the_demo_shows_everything_and_leaves_nothing(home: Path) -> None:
    result = subprocess.run(
        [sys.executable, "-m", "offsetzero", "demo"],
        capture_output=True,
        text=True,
        env={**os.environ, "TMPDIR": str(home), "COLUMNS": "160"},
        timeout=200,
        check=False,
    )
    assert result.returncode == 0, result.stdout + result.stderr
    assert result.stdout.count("✓") == 5
    assert "✗" not in result.stdout
    assert "*dead*" in result.stdout
    assert result.stdout.count("poison") == 2
    assert not list(home.iterdir())
    assert not processes_of(str(home))


@pytest.mark.timeout(240)
def test_a_demo_that_is_killed_leaves_nothing_running(home: Path) -> None:
    process = subprocess.Popen(
        [sys.executable, "-m", "offsetzero", "demo"],
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        env={**os.environ, "TMPDIR": str(home)},
    )
    assert process.stdout is not None
    for line in process.stdout:
        if "Uploading" in line:
            break
    assert processes_of(str(home))
    process.kill()
    process.communicate()
    wait_until(lambda: not processes_of(str(home)), 60, what="all processes of the demo end")
