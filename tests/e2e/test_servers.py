"""The embedded servers: data survive, nothing is left after `kill -9`, and mistakes are told clearly."""

import os
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

import psycopg
import pytest
from confluent_kafka import Consumer, Producer
from confluent_kafka.admin import AdminClient, NewTopic

from machine import autogroup
from offsetzero.embedded import accounts, priority
from offsetzero.embedded.home import HomeLock
from offsetzero.embedded.kafka import Kafka
from offsetzero.embedded.postgres import Postgres
from offsetzero.embedded.process import Child
from offsetzero.errors import ServerError
from support import wait_until, within

_OWNER = """
import sys, time
from pathlib import Path
from offsetzero.embedded.home import HomeLock
from offsetzero.embedded.kafka import Kafka
from offsetzero.embedded.postgres import Postgres
home = Path(sys.argv[1])
lock = HomeLock(home)
hold = (lock.fileno(),)
servers = [Postgres(home / "postgres", hold=hold).start(), Kafka(home / "kafka", hold=hold).start()]
print(*(server.pid for server in servers), flush=True)
time.sleep(600)
"""


@pytest.fixture
def home() -> Iterator[Path]:
    """A folder that PostgreSQL's account may pass to, unlike pytest's own."""
    with tempfile.TemporaryDirectory(prefix="oz-home-") as folder:
        Path(folder).chmod(0o755)
        yield Path(folder)


def alive(pid: int) -> bool:
    """Whether the process runs (a zombie does not)."""
    answer = subprocess.run(["ps", "-o", "stat=", "-p", str(pid)], capture_output=True, text=True, check=False)
    return answer.stdout.strip()[:1] not in ("", "Z")


def guards_of(home: Path) -> list[str]:
    """Command lines of processes that mention the folder."""
    listed = subprocess.run(["ps", "-ww", "-eo", "pid=,args="], capture_output=True, text=True, check=True)
    return [line for line in listed.stdout.splitlines() if str(home) in line and str(os.getpid()) not in line.split()]


def test_kafka_keeps_its_data_over_a_restart_on_other_ports(home: Path) -> None:
    with Kafka(home) as kafka:
        admin = AdminClient({"bootstrap.servers": kafka.bootstrap_servers})
        admin.create_topics([NewTopic("kept", 1, 1)])["kept"].result(60)
        producer = Producer({"bootstrap.servers": kafka.bootstrap_servers})
        producer.produce("kept", b"value", partition=0)
        assert producer.flush(20) == 0
        first = kafka.bootstrap_servers
    blocked = int(first.rsplit(":", 1)[1])
    with socket.socket() as other:
        other.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        other.bind(("127.0.0.1", blocked))
        other.listen()
        with Kafka(home) as kafka:
            assert kafka.bootstrap_servers != first
            consumer = Consumer({"bootstrap.servers": kafka.bootstrap_servers, "group.id": "g"})
            try:
                from confluent_kafka import TopicPartition

                consumer.assign([TopicPartition("kept", 0, 0)])
                message = wait_until(lambda: consumer.poll(0.5))
                assert message.value() == b"value"
            finally:
                consumer.close()


def test_postgres_keeps_its_data_over_a_crash_and_asks_for_its_password(home: Path) -> None:
    with Postgres(home) as postgres:
        with psycopg.connect(postgres.url()) as connection:
            connection.execute("CREATE TABLE kept AS SELECT 1 AS one")
        postgres.kill()
    with Postgres(home) as postgres:
        with psycopg.connect(postgres.url()) as connection:
            assert connection.execute("SELECT one FROM kept").fetchone() == (1,)
            assert connection.execute("CREATE EXTENSION vector").statusmessage == "CREATE EXTENSION"
        with pytest.raises(psycopg.OperationalError, match="password"):
            psycopg.connect(postgres.url(), password="wrong")
        assert postgres.socket_folder is not None
        with pytest.raises(psycopg.OperationalError, match="password"):
            psycopg.connect(postgres.url(), host=str(postgres.socket_folder), password="wrong")
        with psycopg.connect(postgres.url(), host=str(postgres.socket_folder)) as connection:
            assert connection.execute("SELECT inet_client_addr()").fetchone() == (None,)


@pytest.mark.skipif(os.geteuid() != 0, reason="only root drops to another account")
def test_postgres_of_root_runs_unprivileged_and_opens_no_folder(home: Path) -> None:
    closed = home / "closed"
    closed.mkdir(mode=0o700)
    with Postgres(closed / "postgres") as postgres:
        owner = Path(f"/proc/{postgres.pid}").stat().st_uid
        assert owner != 0
        assert closed.stat().st_mode & 0o777 == 0o700
        assert accounts.SYSTEM_FOLDER in postgres.home.parents
        assert postgres.data.stat().st_uid == owner
        assert postgres.data.stat().st_mode & 0o077 == 0
        assert (closed / "postgres" / "password").stat().st_mode & 0o077 == 0
        elsewhere = postgres.home
    subprocess.run(["rm", "-r", str(elsewhere)], check=True)


def test_postgres_starts_when_a_dead_servers_process_id_now_is_another_program(home: Path) -> None:
    with Postgres(home) as postgres:
        data = postgres.data
        postgres.kill()
    lock = data / "postmaster.pid"
    owner = data.stat().st_uid  # PostgreSQL looks only at processes of its own account
    user = {"user": owner, "group": owner} if os.geteuid() == 0 else {}
    other = subprocess.Popen(["/bin/sleep", "60"], **user)
    try:
        lines = lock.read_text().splitlines()
        lock.write_text("\n".join([str(other.pid), *lines[1:]]) + "\n")
        with Postgres(home) as postgres:
            assert postgres.poll() is None
    finally:
        other.kill()
        other.wait()


def test_nothing_is_left_when_the_owner_is_killed(home: Path) -> None:
    owner = subprocess.Popen([sys.executable, "-c", _OWNER, str(home)], stdout=subprocess.PIPE, text=True)
    assert owner.stdout is not None
    pids = [int(word) for word in owner.stdout.readline().split()]
    assert len(pids) == 2
    with pytest.raises(ServerError, match=rf"process {owner.pid}; stop that one"):
        HomeLock(home)
    owner.send_signal(signal.SIGKILL)
    owner.wait()
    with HomeLock(home):  # waits for the servers of the dead one
        assert not any(alive(pid) for pid in pids)
    wait_until(lambda: not guards_of(home), what="guards end")
    owner.stdout.close()


@pytest.mark.skipif(sys.platform != "linux", reason="PR_SET_PDEATHSIG is Linux's")
def test_a_child_ends_when_its_guard_is_killed(tmp_path: Path) -> None:
    child = Child("sleeper", [sys.executable, "-c", "import time; time.sleep(60)"], log=tmp_path / "log")
    parent = int(Path(f"/proc/{child.pid}/stat").read_text().rsplit(")", 1)[1].split()[1])
    os.kill(parent, signal.SIGKILL)
    wait_until(lambda: not alive(child.pid))
    assert child.stop() != 0


@pytest.mark.timed
def test_a_child_that_ignores_its_stop_signal_is_killed_after_the_grace_time(tmp_path: Path) -> None:
    code = (
        "import signal, time; signal.signal(signal.SIGTERM, signal.SIG_IGN); print('deaf', flush=True); time.sleep(60)"
    )
    child = Child("deaf", [sys.executable, "-c", code], log=tmp_path / "log", grace=0.3)
    wait_until(lambda: "deaf" in child.tail())
    started = time.monotonic()
    assert child.stop() == 128 + signal.SIGKILL
    within(10, time.monotonic() - started, "its end")


def test_a_child_gives_way_to_other_sessions_too(tmp_path: Path) -> None:
    """Between two sessions of Linux the niceness of their processes counts for nothing where sessions are groups."""
    code = "import threading, time; threading.Thread(target=time.sleep, args=(60,)).start(); print('up', flush=True)"
    children = [Child(name, [sys.executable, "-c", code], log=tmp_path / name) for name in ("first", "second", "other")]
    try:
        for child in children:
            wait_until(lambda child=child: "up" in child.tail())
        for child in children[:2]:  # one is changed right after another
            priority.lower(child.pid, 7)
        nice = [
            {os.getpriority(os.PRIO_PROCESS, thread) - os.nice(0) for thread in priority._threads(child.pid)}
            for child in children
        ]
        assert nice == [{min(7, 19 - os.nice(0))}] * 2 + [{0}]
        assert [autogroup(child.pid) for child in children] in ([7, 7, 0], [None] * 3)
    finally:
        for child in children:
            child.kill()
    priority.lower(children[0].pid, 7)  # has ended: nothing happens


def test_a_childs_end_and_status_are_seen(tmp_path: Path) -> None:
    child = Child("brief", [sys.executable, "-c", "print('bye'); raise SystemExit(7)"], log=tmp_path / "log")
    wait_until(lambda: child.poll() is not None)
    assert child.poll() == 7
    assert child.tail() == "bye"


def test_a_program_that_is_not_there_is_told(tmp_path: Path) -> None:
    child = Child("ghost", ["/no/such/program"], log=tmp_path / "log")
    wait_until(lambda: child.poll() is not None)
    assert child.poll() == 127
    assert "cannot start /no/such/program" in child.tail()


def test_a_taken_port_is_a_clear_error(home: Path) -> None:
    with socket.socket() as other:
        other.bind(("127.0.0.1", 0))
        other.listen()
        port = other.getsockname()[1]
        for server in (Kafka(home / "kafka", port=port), Postgres(home / "postgres", port=port)):
            with pytest.raises(ServerError, match=f"port {port} on 127.0.0.1 is taken"):
                server.start()


def test_a_broker_that_ends_while_it_starts_says_why(home: Path) -> None:
    with pytest.raises(ServerError, match=r"(?s)Kafka.*(num\.network\.threads|console\.log|server\.log)"):
        Kafka(home, config={"num.network.threads": "none"}).start()


def test_a_data_folder_of_another_postgres_is_told(home: Path) -> None:
    data = home / "data"
    data.mkdir()
    (data / "PG_VERSION").write_text("16\n")
    with pytest.raises(ServerError, match="made by PostgreSQL 16, and this is 18"):
        Postgres(home).start()
