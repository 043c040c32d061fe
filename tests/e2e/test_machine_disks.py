"""Folders that cannot be written: full and read-only disks, limits, other users' folders.

docs/machines.md has the table of what happens, what is said, and what to do.
"""

import contextlib
import os
import resource
import socket
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient, NewTopic

import machine
from offsetzero.embedded.kafka import Kafka
from offsetzero.embedded.stack import Stack
from offsetzero.errors import ServerError
from support import wait_until

ROOT = os.geteuid() == 0
_DATABASE = {"OFFSETZERO_DATABASE_URL": "postgresql://nobody@127.0.0.1:1/none"}  # named, so none is started
_POSTGRES = """
import sys
from pathlib import Path
from offsetzero.embedded.postgres import Postgres
with Postgres(Path(sys.argv[1])):
    print("up")
"""


@pytest.fixture
def home() -> Iterator[Path]:
    """A folder that every account may pass to, unlike pytest's own."""
    with tempfile.TemporaryDirectory(prefix="oz-home-") as folder:
        Path(folder).chmod(0o755)
        yield Path(folder)


@pytest.mark.skipif(not ROOT, reason="only root can become a user without a name")
def test_a_user_without_a_name_is_told(home: Path) -> None:
    (home / "data").mkdir()
    machine.give(home / "data", machine.NAMELESS)
    command = machine.as_ordinary([sys.executable, "-c", _POSTGRES, str(home / "data")], machine.NAMELESS)
    result = subprocess.run(command, capture_output=True, text=True, check=False, cwd="/")
    assert "user id 59900 has no name on this machine" in result.stderr
    assert "/etc/passwd" in result.stderr


def test_a_full_disk_is_told_before_the_start(home: Path) -> None:
    if not machine.can_mount():
        pytest.skip("no disk can be mounted here")
    with machine.small_disk("size=20m") as disk:
        result = machine.offsetzero_up(disk / "home")
        assert result.returncode == 1
        assert "only 21 MB are free on its disk, and offsetzero wants 67 MB" in result.stderr
        assert not (disk / "home" / "kafka").exists()


def test_a_disk_that_fills_up_under_kafka_is_told_and_what_was_acknowledged_is_there_again(home: Path) -> None:
    if not machine.can_mount():
        pytest.skip("no disk can be mounted here")
    with machine.small_disk("size=90m") as disk, contextlib.ExitStack() as cleanup:
        stack = Stack(disk / "home", machine.Steps(), environment=_DATABASE, api_port=0)
        cleanup.callback(stack.close)
        cleanup.callback(stack.kill)
        assert stack.kafka is not None
        stack.kafka.start()
        admin = AdminClient({"bootstrap.servers": stack.kafka.bootstrap_servers, "log_level": 0})
        admin.create_topics([NewTopic("t", 1, 1)])["t"].result(60)
        answers: list[Any] = []
        producer = Producer({"bootstrap.servers": stack.kafka.bootstrap_servers, "log_level": 0})
        producer.produce("t", b"first", on_delivery=lambda error, _message: answers.append(error))
        producer.flush(20)
        assert answers == [None]
        _fill(disk / "ballast")

        def ends() -> str:
            producer.produce("t", os.urandom(100_000))
            producer.poll(0)
            try:
                stack.check()
            except ServerError as error:
                return str(error)
            return ""

        said = wait_until(ends, what="Kafka ends")
        assert "Kafka ended by itself" in said
        assert "No space left on device: 0 MB are free on the disk of" in said
        producer.purge()
        (disk / "ballast").unlink()
        with Kafka(disk / "home" / "kafka") as kafka:
            assert machine.first_record(kafka, "t") == b"first"


def test_a_limit_on_files_is_told_and_spoils_nothing(home: Path) -> None:
    home.joinpath("data").mkdir(mode=0o711)
    machine.give(home / "data")

    def limit() -> None:
        resource.setrlimit(resource.RLIMIT_FSIZE, (8 * 1024 * 1024, resource.RLIM_INFINITY))

    folder = home / "data" / "postgres"
    command = machine.as_ordinary([sys.executable, "-c", _POSTGRES, str(folder)])
    result = subprocess.run(command, capture_output=True, text=True, preexec_fn=limit, check=False, cwd="/")
    assert "cannot be made" in result.stderr
    assert "File too large:" in result.stderr
    assert "`ulimit -f`" in result.stderr
    result = subprocess.run(command, capture_output=True, text=True, check=False, cwd="/")
    assert result.stdout == "up\n", result.stderr


def test_a_read_only_home_is_told(home: Path) -> None:
    if machine.can_mount():
        with machine.small_disk("ro") as disk:
            result = machine.offsetzero_up(disk / "home")
            assert result.returncode == 1
            assert "it is on a read-only disk; choose another folder with OFFSETZERO_HOME" in result.stderr
    (home / "data").mkdir(mode=0o555)
    machine.give(home / "data")
    result = machine.offsetzero_up(home / "data", ordinary=True)
    assert result.returncode == 1
    assert "cannot be used by this user: Permission denied" in result.stderr


@pytest.mark.skipif(not ROOT, reason="needs what root left")
def test_a_home_that_root_used_before_is_told_to_the_ordinary_user(home: Path) -> None:
    (home / "data" / "kafka").mkdir(parents=True)
    machine.give(home / "data")
    os.chown(home / "data" / "kafka", 0, 0)
    (home / "data" / "kafka").chmod(0o700)
    result = machine.offsetzero_up(home / "data", ordinary=True)
    assert result.returncode == 1
    assert "cannot be used by this user: Permission denied" in result.stderr
    assert "belongs to root); run as its owner" in result.stderr


def test_a_fresh_start_removes_old_data_first(home: Path) -> None:
    (home / "kafka").mkdir()
    (home / "postgres" / "data").mkdir(parents=True)
    (home / "postgres" / "data" / "PG_VERSION").write_text("16\n")
    (home / "mine.txt").touch()
    (home / "up.lock").touch()  # it was used before
    with socket.socket() as other:
        other.bind(("127.0.0.1", 0))
        other.listen()
        result = machine.offsetzero_up(home, "--fresh", "--port", str(other.getsockname()[1]))
    assert "is taken by another process" in result.stderr
    assert not (home / "kafka").exists()
    assert not (home / "postgres").exists()
    assert (home / "mine.txt").exists()


def _fill(path: Path) -> None:
    with contextlib.suppress(OSError), path.open("wb", buffering=0) as file:
        while True:
            file.write(b"\0" * 65_536)
