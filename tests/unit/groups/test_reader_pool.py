"""What a file does to its reader it does to nothing else: real processes, real limits of the kernel."""

import io
import os
import signal
import socket
import subprocess
import sys
import tempfile
import textwrap
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
from structlog.testing import capture_logs

from offsetzero.consumers.groups.extraction import ReaderPool
from offsetzero.consumers.groups.extraction.sandbox import Network
from offsetzero.retry.failures import Bug, Failure, Permanent, Poison, Transient
from offsetzero.settings import DocumentSettings
from support import wait_until

TESTS = Path(__file__).parents[2]
READERS = "hostile_readers:READERS"
LIMITS = DocumentSettings(workers=2, memory=128 * 1024 * 1024, cpu_seconds=1, wall_seconds=4)
linux = pytest.mark.skipif(sys.platform != "linux", reason="the limits are those of Linux")


@pytest.fixture(autouse=True)
def _readers_can_be_found(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PYTHONPATH", str(TESTS))


@pytest.fixture(scope="module")
def pool() -> Iterator[ReaderPool]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("PYTHONPATH", str(TESTS))
        with ReaderPool(LIMITS, readers=READERS) as pool:
            yield pool


def _read(pool: ReaderPool, kind: str, content: bytes = b"hello") -> str:
    with tempfile.TemporaryFile() as file:
        file.write(content)
        return pool.read(kind, file).text


def _failure(pool: ReaderPool, kind: str, content: bytes = b"hello") -> Failure:
    with pytest.raises(Failure) as caught:
        _read(pool, kind, content)
    return caught.value


def _descendants(pid: int) -> set[int]:
    found: set[int] = set()
    for task in Path(f"/proc/{pid}/task").glob("*/children"):
        for child in map(int, task.read_text().split()):
            found |= {child} | _descendants(child)
    return found


def _lives(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


@linux
@pytest.mark.parametrize(
    ("kind", "failure", "reason"),
    [
        ("segfault", Poison, "reader-crashed"),
        ("abort", Poison, "reader-crashed"),
        ("exit", Poison, "reader-crashed"),
        ("spin", Poison, "too-slow"),
        ("hang", Poison, "too-slow"),
        ("close-and-hang", Poison, "too-slow"),
        ("eat", Poison, "too-much-memory"),
        ("eat-and-crash", Poison, "too-much-memory"),
        ("starve", Poison, "too-much-memory"),
        ("flood", Poison, "too-much-text"),
        ("fork", Poison, "reader-forbidden"),
        ("exec", Poison, "reader-forbidden"),
        ("replace", Poison, "reader-forbidden"),
        ("socket", Poison, "reader-forbidden"),
        ("kill-owner", Poison, "reader-forbidden"),
        ("kill-group", Poison, "reader-forbidden"),
        ("killed-itself", Transient, "reader-killed"),
        ("none such", Permanent, "unsupported-type"),
        ("permanent", Permanent, "no-pages"),
        ("poison", Poison, "corrupt"),
        ("fault", Bug, "ZeroDivisionError"),
    ],
)
def test_what_a_reader_does_is_one_failure_of_its_document(
    pool: ReaderPool, kind: str, failure: type[Failure], reason: str
) -> None:
    owners = pool.pids()
    with ThreadPoolExecutor(6) as threads:
        others = [threads.submit(_read, pool, "slow-text", f"document {n}".encode()) for n in range(4)]
        found = _failure(pool, kind)
        assert [other.result() for other in others] == [f"document {n}" for n in range(4)]
    assert (type(found), found.reason) == (failure, reason)
    assert found.detail
    assert pool.pids() == owners, "only the reader's own process has ended"
    assert _read(pool, "text") == "hello"
    assert not any(_descendants(owner) for owner in owners)


@linux
def test_computing_has_a_limit_of_its_own(pool: ReaderPool) -> None:
    patient = LIMITS.model_copy(update={"workers": 1, "wall_seconds": 100.0})
    with ReaderPool(patient, readers=READERS) as other:
        assert "more than 1 s of computing" in _failure(other, "spin").detail
    assert "within 4 s, 0 s of it computing" in _failure(pool, "hang").detail


def test_a_fault_of_ours_comes_with_its_stack(pool: ReaderPool) -> None:
    found = _failure(pool, "fault")
    assert "oh no" in found.internal
    assert "oh no" not in found.detail + str(found.__cause__), "it may be what the document says"
    assert "hostile_readers.py" in str(found.__cause__)


@pytest.mark.parametrize(
    "answer",
    [
        b"",
        b"\xff\xfe",
        b"[]",
        b"null",
        b'{"pages": [[1, "a", "b"]]}',
        b'{"pages": [[0, "a", "b"]], "warnings": []}',
        b'{"pages": [[true, "a", "b"]], "warnings": 5}',
        b'{"pages": [[1, "\\ud800", "b"]], "warnings": []}',
        b'{"failure": "transient", "reason": "x", "detail": "y", "stack": ""}',
        b"[" * 200_000,
    ],
)
def test_an_answer_that_is_none_is_poison(pool: ReaderPool, answer: bytes) -> None:
    found = _failure(pool, "lie", answer)
    assert (type(found), found.reason) == (Poison, "reader-confused")


def test_an_answer_is_fit_to_be_stored(pool: ReaderPool) -> None:
    assert _read(pool, "lie", b'{"pages": [[1, "a\\u0000b", "t"]], "warnings": []}') == "ab"


@linux
def test_a_reader_may_have_threads(pool: ReaderPool) -> None:
    assert _read(pool, "threads") == "hello"


@linux
def test_a_reader_writes_no_byte_into_a_file(pool: ReaderPool, tmp_path: Path) -> None:
    path = tmp_path / "written"
    assert isinstance(_failure(pool, "write", str(path).encode()), Bug)
    assert not path.exists() or path.stat().st_size == 0


@linux
def test_a_reader_has_nothing_open_but_its_document_and_its_answer(pool: ReaderPool) -> None:
    *standard, _listing, document, answer = _read(pool, "descriptors").split()
    assert standard == ["0", "1", "2"]
    assert (document, answer) == ("62", "63")


def test_a_reader_is_told_no_secret(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OFFSETZERO_DATABASE_URL", "postgresql://secret")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "secret")
    with ReaderPool(LIMITS, readers=READERS) as pool:
        names = _read(pool, "environment").split()
    assert "PATH" in names
    assert not [name for name in names if name.startswith(("OFFSETZERO_", "AWS_"))]


@linux
@pytest.mark.parametrize("way", [Network.SECCOMP, Network.NAMESPACE])
def test_no_reader_reaches_the_network(way: Network) -> None:
    with socket.create_server(("127.0.0.1", 0)) as server, ReaderPool(LIMITS, readers=READERS, ways=[way]) as pool:
        _read(pool, "text")
        if _network(pool) is not way:
            pytest.skip(f"this machine does not allow {way}")
        _failure(pool, "connect", str(server.getsockname()[1]).encode())
        server.settimeout(0.2)
        with pytest.raises(TimeoutError):
            server.accept()


@linux
def test_a_machine_that_allows_no_containment_is_told_once_and_works() -> None:
    """Without seccomp and namespaces: the other limits hold, and what a reader starts ends with it."""
    with ReaderPool(LIMITS, readers=READERS, ways=[]) as pool, capture_logs() as logs:
        assert _read(pool, "text") == "hello"
        if os.geteuid() == 0:  # RLIMIT_NPROC keeps others from forking at all
            assert not [pid for pid in map(int, _read(pool, "fork-many").split()) if _lives(pid)], "orphans are left"
        assert _failure(pool, "eat").reason == "too-much-memory"
    assert len([line for line in logs if "can use the network" in line["event"]]) == 1


def _network(pool: ReaderPool) -> Network:
    with pool._lock:
        return next(owner.network for owner in pool._all if owner.network is not None)


@linux
def test_a_pool_outlives_the_death_of_an_owner() -> None:
    with (
        ReaderPool(LIMITS.model_copy(update={"workers": 1}), readers=READERS) as pool,
        ThreadPoolExecutor(1) as threads,
    ):
        assert _read(pool, "text") == "hello"
        (owner,) = pool.pids()
        hanging = threads.submit(_failure, pool, "hang")
        (reader,) = wait_until(lambda: _descendants(owner), what="the reader works")
        os.kill(owner, signal.SIGKILL)
        found = hanging.result()
        assert (type(found), found.reason) == (Transient, "reader-lost")
        wait_until(lambda: not _lives(reader), 10, what="the reader has ended with its owner")
        assert _read(pool, "text") == "hello"
        assert pool.pids() != [owner]


@linux
def test_closing_a_pool_ends_what_it_reads() -> None:
    pool = ReaderPool(LIMITS, readers=READERS)
    pool.start()
    owners = pool.pids()
    with ThreadPoolExecutor(3) as threads:
        hanging = [threads.submit(_failure, pool, "hang") for _ in range(3)]
        wait_until(lambda: all(_descendants(owner) for owner in owners), what="two are read, one waits")
        readers = set.union(*(_descendants(owner) for owner in owners))
        pool.close()
        assert {found.result().reason for found in hanging} == {"reader-lost"}
    assert not [pid for pid in [*owners, *readers] if _lives(pid)]
    pool.close()


@pytest.mark.parametrize("readers", ["no_such_module:READERS", "hostile_readers:NOTHING"])
def test_readers_that_cannot_be_loaded_are_a_failure_not_a_wait(
    readers: str, capfd: pytest.CaptureFixture[str]
) -> None:
    with ReaderPool(LIMITS.model_copy(update={"workers": 1}), readers=readers) as pool:
        found = _failure(pool, "text")
    assert (type(found), found.reason) == (Transient, "reader-lost")
    assert "did not start" in found.detail
    assert "Error" in capfd.readouterr().err


def _start(code: str, **options: Any) -> "subprocess.Popen[bytes]":
    return subprocess.Popen([sys.executable, "-c", textwrap.dedent(code)], stdout=subprocess.PIPE, **options)


HANGING = """
    import tempfile, threading
    from offsetzero.consumers.groups.extraction import ReaderPool
    from offsetzero.settings import DocumentSettings

    def read():
        with tempfile.TemporaryFile(prefix="offsetzero-") as file:
            file.write(b"content")
            pool.read("hang", file)

    pool = ReaderPool(DocumentSettings(workers=2), readers="hostile_readers:READERS")
    pool.start()
    for _ in range(2):
        threading.Thread(target=read).start()
    print("started", flush=True)
"""


@linux
def test_nothing_is_left_of_a_group_that_is_killed(tmp_path: Path) -> None:
    group = _start(HANGING, env={**os.environ, "TMPDIR": str(tmp_path)}, start_new_session=True)
    try:
        assert group.stdout is not None
        assert group.stdout.readline() == b"started\n"
        owners = wait_until(lambda: _descendants(group.pid), what="the owners run")
        wait_until(lambda: len(_descendants(group.pid)) == 4, what="two owners and two readers run")
        everything = _descendants(group.pid) | owners
        assert list(tmp_path.iterdir()) == [], "a document has a name in the file system"
    finally:
        group.kill()
        group.communicate()
    wait_until(lambda: not [pid for pid in everything if _lives(pid)], 10, what="all have ended")
    assert list(tmp_path.iterdir()) == []


WITHOUT_PRIVILEGE = """
    import ctypes, tempfile
    from offsetzero.consumers.groups.extraction import ReaderPool
    from offsetzero.consumers.groups.extraction.sandbox import Network
    from offsetzero.settings import DocumentSettings
    from offsetzero.retry.failures import Failure

    libc = ctypes.CDLL(None, use_errno=True)
    libc.prctl(28, 3, 0, 0, 0)  # PR_SET_SECUREBITS, SECBIT_NOROOT: no program that is started is root again
    header = (ctypes.c_uint32 * 2)(0x20080522, 0)
    assert libc.capset(header, (ctypes.c_uint32 * 6)()) == 0, "capabilities could not be dropped"
    limits = DocumentSettings(workers=1, memory=134217728, cpu_seconds=1, wall_seconds=4)
    for ways in [Network.SECCOMP], [Network.NAMESPACE]:
        with ReaderPool(limits, readers="hostile_readers:READERS", ways=ways) as pool:
            for kind in "text", "socket", "fork", "eat", "spin":
                with tempfile.TemporaryFile() as file:
                    file.write(b"hello")
                    try:
                        print(kind, pool.read(kind, file).text)
                    except Failure as failure:
                        print(kind, failure.reason)
            with pool._lock:
                print(*[owner.network for owner in pool._all])
"""


@linux
def test_no_privilege_is_needed() -> None:
    """As root all capabilities are dropped; as an ordinary user there are none to drop."""
    process = _start(WITHOUT_PRIVILEGE)
    said = [line for line in process.communicate(timeout=60)[0].decode().splitlines() if "[warning" not in line]
    assert process.returncode == 0
    assert said[:6] == [
        "text hello",
        "socket reader-forbidden",
        "fork reader-forbidden",
        "eat too-much-memory",
        "spin too-slow",
        "seccomp",
    ]
    assert said[6] == "text hello"
    assert said[9:11] == ["eat too-much-memory", "spin too-slow"]


def test_a_file_in_memory_is_no_file_for_a_reader(pool: ReaderPool) -> None:
    with pytest.raises(io.UnsupportedOperation):
        pool.read("text", io.BytesIO(b"hello"))
    assert _read(pool, "text") == "hello"
