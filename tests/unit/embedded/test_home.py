"""The lock on a data folder, who may use the folder, and which versions."""

import errno
import json
import os
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from offsetzero import endpoints
from offsetzero.embedded import accounts, disk, fresh, version
from offsetzero.embedded.home import HomeLock
from offsetzero.errors import ServerError

_HOLD = """
import fcntl, sys, time
file = open(sys.argv[1], "r+")
fcntl.flock(file, fcntl.LOCK_EX)
print("held", flush=True)
time.sleep(60)
"""


@pytest.fixture
def guard(tmp_path: Path) -> Iterator["subprocess.Popen[str]"]:
    """A process that holds the lock, as the guard of a dead `up` does until its servers have ended."""
    (tmp_path / "up.lock").touch()
    process = subprocess.Popen(
        [sys.executable, "-c", _HOLD, str(tmp_path / "up.lock")],
        stdout=subprocess.PIPE,
        text=True,
    )
    assert process.stdout is not None
    assert process.stdout.readline() == "held\n"
    yield process
    process.kill()
    process.wait()
    process.stdout.close()


def test_a_number_that_another_process_has_got_meanwhile_is_not_blamed(
    tmp_path: Path, guard: "subprocess.Popen[str]"
) -> None:
    other = os.getpid()  # lives, and did not start at tick 1
    (tmp_path / "up.lock").write_text(f"{other} 1\n")
    ends = threading.Timer(0.3, guard.kill)  # the dead one's servers have ended
    ends.start()
    with HomeLock(tmp_path):  # waits
        assert guard.wait(5) != 0
    ends.join()


def test_the_owner_is_named_and_endpoints_count_while_it_lives(tmp_path: Path) -> None:
    with HomeLock(tmp_path):
        endpoints.write(tmp_path, {"A": "b"})
        assert endpoints.read(tmp_path) == {"A": "b"}
        with pytest.raises(ServerError, match=rf"process {os.getpid()}; stop that one \(kill {os.getpid()}\)"):
            HomeLock(tmp_path)
    assert endpoints.read(tmp_path) == {}
    with HomeLock(tmp_path):
        assert not endpoints.file(tmp_path).exists()


def test_a_file_in_the_folders_place_and_a_name_that_is_no_utf8_are_told(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    for home in (tmp_path / "file", tmp_path / "file" / "below"):
        with pytest.raises(ServerError, match=r"(?i)not a directory; choose another folder with OFFSETZERO_HOME"):
            HomeLock(home)
    with pytest.raises(ServerError, match="not UTF-8"):
        HomeLock(tmp_path / os.fsdecode(b"\xff"))


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can give a file away")
def test_root_leaves_the_folder_of_an_ordinary_user_alone(tmp_path: Path) -> None:
    lock = tmp_path / "up.lock"
    lock.touch()
    os.chown(lock, 59_900, 59_900)
    with pytest.raises(ServerError, match="belong to user 59900; run as that user"):
        HomeLock(tmp_path)
    assert lock.read_text() == ""


@pytest.mark.parametrize("newer", [{"format": version.FORMAT + 1}, {"kafka": "9.0.1"}])
def test_a_folder_of_a_newer_offsetzero_is_not_touched(tmp_path: Path, newer: dict[str, object]) -> None:
    version.record(tmp_path)
    version.check(tmp_path)
    text = json.dumps({**version.mine(), "offsetzero": "7.1", **newer})
    (tmp_path / version.FILE).write_text(text)
    with pytest.raises(ServerError, match=r"written by a newer offsetzero \(.*offsetzero 7\.1.*Nothing was changed"):
        version.check(tmp_path)
    assert (tmp_path / version.FILE).read_text() == text


@pytest.mark.parametrize("left", ["", "{", "[]", '{"kafka": "3.9.0"}'])
def test_a_folder_of_an_older_or_a_cut_short_one_is_taken_over(tmp_path: Path, left: str) -> None:
    (tmp_path / version.FILE).write_text(left)
    version.check(tmp_path)
    version.record(tmp_path)
    assert json.loads((tmp_path / version.FILE).read_text()) == version.mine()


def test_starting_over_removes_our_data_wherever_they_are_and_nothing_else(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(accounts, "SYSTEM_FOLDER", tmp_path / "system")
    monkeypatch.setattr(accounts, "is_root", lambda: True)
    monkeypatch.setattr(accounts, "reachable", lambda _path: False)
    home = tmp_path / "home"
    for name in ("kafka", "objects", "logs", "postgres", "photos"):
        (home / name).mkdir(parents=True)
    version.record(home)
    (home / "demo-key").touch()
    from offsetzero.embedded.postgres import Postgres

    elsewhere = Postgres(home / "postgres").home
    (elsewhere / "data").mkdir(parents=True)
    fresh.remove(home)
    assert [path.name for path in home.iterdir()] == ["photos"]
    assert not elsewhere.exists()
    fresh.remove(home)  # nothing to remove


def test_too_little_space_is_told_before_anything_is_written(tmp_path: Path) -> None:
    disk.require(tmp_path / "not" / "there" / "yet", 1)
    with pytest.raises(ServerError, match=r"only \d+ MB are free on its disk, and offsetzero wants \d+ MB"):
        disk.require(tmp_path, disk.free(tmp_path) + 10**12)


@pytest.mark.parametrize(
    ("code", "said"),
    [
        (errno.ENOSPC, r"No space left on device; \d+ MB are free on its disk. Free some"),
        (errno.EDQUOT, "Free some"),
        (errno.EFBIG, "File too large"),
        (errno.EROFS, "read-only disk; choose another folder with OFFSETZERO_HOME"),
        (errno.EACCES, r"cannot be used by this user: Permission denied \(.* belongs to .*; run as its owner"),
    ],
)
def test_a_failed_write_says_what_to_do(tmp_path: Path, code: int, said: str) -> None:
    with pytest.raises(ServerError, match=said), disk.told(tmp_path):
        raise OSError(code, os.strerror(code), str(tmp_path / "file"))


def test_other_failures_pass_unchanged(tmp_path: Path) -> None:
    with pytest.raises(ConnectionRefusedError), disk.told(tmp_path):
        raise ConnectionRefusedError(errno.ECONNREFUSED, "refused")
