"""Kafka's jars: exactly those of the lock, from a real HTTP repository."""

import errno
import hashlib
import os
import threading
from collections import Counter
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest

from offsetzero.embedded.jars import JarCache
from offsetzero.embedded.lock import Jar, read_lock
from offsetzero.errors import ServerError

_CONTENT = {f"part{number}-1.jar": os.urandom(20_000 * (number + 1)) for number in range(4)}


class Repository(ThreadingHTTPServer):
    """A Maven repository with four jars; the first `failures` answers break off in the middle of a jar."""

    daemon_threads = True

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.content = dict(_CONTENT)
        self.asked: Counter[str] = Counter()
        self.failures = 0
        self.lock = threading.Lock()


class _Handler(BaseHTTPRequestHandler):
    server: Repository

    def do_GET(self) -> None:
        name = self.path.rsplit("/", 1)[-1]
        body = self.server.content.get(name)
        with self.server.lock:
            self.server.asked[name] += 1
            fails = body is not None and self.server.failures > 0
            self.server.failures -= fails
        self.send_response(200 if body is not None else 404)
        body = body or b""
        self.send_header("content-length", str(len(body)))
        self.end_headers()
        self.wfile.write(body[: len(body) // 2] if fails else body)

    def log_message(self, *_args: object) -> None:
        pass


@pytest.fixture
def repository() -> Iterator[Repository]:
    server = Repository()
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    yield server
    server.shutdown()
    server.server_close()
    thread.join()


@pytest.fixture
def jars() -> list[Jar]:
    return [
        Jar("org.example", name.removesuffix("-1.jar"), "1", hashlib.sha256(data).hexdigest(), len(data))
        for name, data in _CONTENT.items()
    ]


def cache(folder: Path, jars: list[Jar], repository: Repository) -> JarCache:
    url = f"http://127.0.0.1:{repository.server_port}/maven"
    return JarCache(folder, jars, repositories={"local": url}, retry_pause=0.01)


def test_jars_are_fetched_once_in_lock_order_and_progress_ends_at_the_total(
    tmp_path: Path, jars: list[Jar], repository: Repository
) -> None:
    seen: list[tuple[int, int]] = []
    paths = cache(tmp_path, jars, repository).ensure(lambda done, total: seen.append((done, total)))
    assert [path.read_bytes() for path in paths] == list(_CONTENT.values())
    total = sum(len(data) for data in _CONTENT.values())
    assert seen[0] == (0, total)
    assert seen[-1] == (total, total)
    asked = repository.asked.copy()
    assert cache(tmp_path, jars, repository).ensure() == paths
    assert repository.asked == asked


def test_a_failed_download_is_tried_again_and_not_counted_twice(
    tmp_path: Path, jars: list[Jar], repository: Repository
) -> None:
    repository.failures = 2
    seen: list[tuple[int, int]] = []
    cache(tmp_path, jars, repository).ensure(lambda done, total: seen.append((done, total)))
    assert seen[-1][0] == seen[-1][1]


def test_a_repository_without_a_jar_is_told_and_what_arrived_is_kept(
    tmp_path: Path, jars: list[Jar], repository: Repository
) -> None:
    del repository.content["part0-1.jar"]
    with pytest.raises(
        ServerError,
        match=r"(?s)cannot fetch org\.example:part0:1.*from Maven Central, at the first start.*copy the folder",
    ):
        cache(tmp_path, jars, repository).ensure()
    assert (tmp_path / "part3-1.jar").exists()
    assert not list(tmp_path.glob(".fetch-*"))


def test_a_jar_that_is_not_what_the_lock_names_never_reaches_the_cache(
    tmp_path: Path, jars: list[Jar], repository: Repository
) -> None:
    repository.content["part2-1.jar"] = b"something else"
    with pytest.raises(ServerError, match=r"org\.example:part2:1 as downloaded is not what kafka\.lock names"):
        cache(tmp_path, jars, repository).ensure()
    assert not (tmp_path / "part2-1.jar").exists()


def test_a_jar_changed_in_the_cache_is_refused_by_name(tmp_path: Path, jars: list[Jar], repository: Repository) -> None:
    paths = cache(tmp_path, jars, repository).ensure()
    data = paths[1].read_bytes()
    paths[1].write_bytes(data[:-1] + b"!")
    with pytest.raises(ServerError, match=r"part1-1\.jar is not the jar .* Delete it"):
        cache(tmp_path, jars, repository).ensure()
    paths[1].unlink()
    assert cache(tmp_path, jars, repository).ensure()[1].read_bytes() == data


def test_a_jar_that_was_only_touched_is_hashed_again_and_taken(
    tmp_path: Path, jars: list[Jar], repository: Repository
) -> None:
    paths = cache(tmp_path, jars, repository).ensure()
    os.utime(paths[0], (1, 1))
    assert cache(tmp_path, jars, repository).ensure() == paths


def test_two_fetchers_at_once_fetch_each_jar_once(tmp_path: Path, jars: list[Jar], repository: Repository) -> None:
    problems: list[BaseException] = []

    def fetch() -> None:
        try:
            cache(tmp_path, jars, repository).ensure()
        except BaseException as error:
            problems.append(error)

    threads = [threading.Thread(target=fetch) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not problems
    assert all(repository.asked[name] == 1 for name in _CONTENT)


def test_a_stop_while_jars_are_fetched_ends_the_fetch(tmp_path: Path, jars: list[Jar], repository: Repository) -> None:
    def progress(done: int, _total: int) -> None:
        if done:
            raise ServerError("stopped")

    with pytest.raises(ServerError, match="stopped"):
        cache(tmp_path, jars, repository).ensure(progress)


def test_the_committed_lock_has_one_version_of_kafka_and_a_checksum_for_each_jar() -> None:
    jars = read_lock()
    assert {jar.version for jar in jars if jar.group == "org.apache.kafka"} == {"4.4.0"}
    assert len({jar.file_name for jar in jars}) == len(jars) > 40
    assert any(jar.artifact == "log4j-slf4j-impl" for jar in jars)


def test_a_damaged_lock_names_the_line(tmp_path: Path) -> None:
    lock = tmp_path / "kafka.lock"
    lock.write_text("# jars\norg.example:one:1 md5:abc 12\n")
    with pytest.raises(ServerError, match=r"kafka\.lock:2"):
        read_lock(lock)


def test_a_jar_that_was_cut_short_or_is_no_file_is_refused_by_name(
    tmp_path: Path, jars: list[Jar], repository: Repository
) -> None:
    paths = cache(tmp_path, jars, repository).ensure()
    data = paths[2].read_bytes()
    paths[2].write_bytes(data[:1000])
    with pytest.raises(ServerError, match=r"part2-1\.jar is not the jar .* Delete it"):
        cache(tmp_path, jars, repository).ensure()
    paths[2].unlink()
    paths[2].mkdir()
    with pytest.raises(ServerError, match=r"part2-1\.jar cannot be used: Is a directory"):
        cache(tmp_path, jars, repository).ensure()


def test_a_cache_that_cannot_be_made_is_told(tmp_path: Path, jars: list[Jar], repository: Repository) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(ServerError, match=r"Not a directory; choose another folder with XDG_CACHE_HOME"):
        cache(tmp_path / "file" / "cache", jars, repository).ensure()


def test_a_full_disk_is_not_taken_for_a_bad_network(
    tmp_path: Path, jars: list[Jar], repository: Repository, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(*_args: object) -> Path:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr("offsetzero.embedded.jars._download", full)
    with pytest.raises(ServerError, match="No space left on device"):
        cache(tmp_path, jars, repository).ensure()
    assert not list(tmp_path.glob(".fetch-*"))
