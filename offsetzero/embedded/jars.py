"""Kafka's jars: exactly those of `kafka.lock`, fetched once for each user of the machine and checked.

The lock names every jar with its checksum, so nothing is resolved here: jgo only downloads the named files.
A file is hashed in full when it arrives; before later starts its size and time of change are compared with what
they were then, and it is hashed again when they differ.
"""

import fcntl
import functools
import hashlib
import json
import os
import shutil
import tempfile
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import platformdirs

from offsetzero.embedded import disk
from offsetzero.embedded.lock import LOCK, Jar, read_lock
from offsetzero.errors import ServerError

_STAMPS = "verified.json"
_CONNECTIONS = 6
_TRIES = 3

Progress = Callable[[int, int], None]
"""Called with the bytes fetched so far and in all, from several threads."""


def cache_folder() -> Path:
    """Where the jars are kept: one folder for all clones and projects of a user."""
    return Path(platformdirs.user_cache_dir("offsetzero")) / "kafka-jars"


class JarCache:
    """A folder of verified jars, safe with several processes that fill it at once.

    Args:
        folder: where they are kept; by default the user's cache.
        jars: what must be there; by default what the lock names.
        repositories: Maven repositories by name; by default Maven Central and those of jgo's configuration.
        retry_pause: seconds before the second try of a download; twice as many before the third.
    """

    def __init__(
        self,
        folder: Path | None = None,
        jars: list[Jar] | None = None,
        *,
        repositories: Mapping[str, str] | None = None,
        retry_pause: float = 1.0,
    ) -> None:
        self.folder = folder or cache_folder()
        self.jars = read_lock() if jars is None else jars
        self._repositories = repositories
        self._retry_pause = retry_pause

    def missing(self) -> list[Jar]:
        """The jars that must be fetched."""
        return [jar for jar in self.jars if not (self.folder / jar.file_name).exists()]

    def ensure(self, progress: Progress | None = None) -> list[Path]:
        """Fetch what is missing, verify everything, and return the paths in class path order.

        Raises:
            ServerError: a jar cannot be fetched, or is not what the lock says.
        """
        with disk.told(self.folder, "XDG_CACHE_HOME"):
            if self.missing():
                self.folder.mkdir(parents=True, exist_ok=True)
                with self._locked():
                    missing = self.missing()  # another process may have fetched them meanwhile
                    if missing:
                        self._fetch(missing, progress or (lambda _done, _total: None))
            self._verify()
        return [self.folder / jar.file_name for jar in self.jars]

    @contextmanager
    def _locked(self) -> Iterator[None]:
        with (self.folder / ".lock").open("a") as file:
            fcntl.flock(file, fcntl.LOCK_EX)
            yield

    def _verify(self) -> None:
        stamps = self._stamps()
        changed = False
        for jar in self.jars:
            path = self.folder / jar.file_name
            stamp = [jar.sha256, *_identity(path)]
            if stamps.get(jar.file_name) == stamp:
                continue
            digest = _sha256(path)
            if digest != jar.sha256:
                raise ServerError(
                    f"{path} is not the jar that {LOCK.name} names: sha256 {digest}, expected {jar.sha256}; "
                    "it was changed or damaged. Delete it to have it fetched again"
                )
            stamps[jar.file_name] = stamp
            changed = True
        if changed and os.access(self.folder, os.W_OK):  # else they are hashed again at each start
            _replace(self.folder / _STAMPS, json.dumps(stamps).encode())

    def _stamps(self) -> dict[str, Any]:
        try:
            stamps = json.loads((self.folder / _STAMPS).read_text())
        except (OSError, ValueError):
            return {}
        return stamps if isinstance(stamps, dict) else {}

    def _fetch(self, jars: list[Jar], progress: Progress) -> None:
        total = sum(jar.size for jar in jars)
        counter = _Counter(progress, total)
        for left in self.folder.glob(".fetch-*"):  # by one that was killed: we hold the lock
            shutil.rmtree(left, ignore_errors=True)
        with tempfile.TemporaryDirectory(prefix=".fetch-", dir=self.folder) as temporary:
            pool = ThreadPoolExecutor(_CONNECTIONS, thread_name_prefix="jars")
            try:
                largest_first = sorted(jars, key=lambda jar: -jar.size)
                for _ in pool.map(lambda jar: self._fetch_one(jar, Path(temporary), counter), largest_first):
                    pass
            finally:
                pool.shutdown(cancel_futures=True)

    def _fetch_one(self, jar: Jar, temporary: Path, counter: "_Counter") -> None:
        problem: Exception | None = None
        for attempt in range(_TRIES):
            if attempt:
                time.sleep(attempt * self._retry_pause)
            repository = temporary / f"{jar.file_name}.{attempt}"  # a part of an earlier try must not be taken
            arrived: list[int] = []
            try:
                path = _download(jar, repository, functools.partial(counter.add, seen=arrived), self._repositories)
            except ServerError:  # the start is being stopped
                raise
            except Exception as error:  # jgo raises RuntimeError, requests' and others
                if disk.is_full(error):
                    raise
                counter.add(-sum(arrived))
                problem = error
                continue
            digest = _sha256(path)
            if digest != jar.sha256:
                raise ServerError(
                    f"{jar} as downloaded is not what {LOCK.name} names: sha256 {digest}, "
                    f"expected {jar.sha256}; do not use this repository or proxy"
                )
            _flush(path)
            path.replace(self.folder / jar.file_name)
            shutil.rmtree(repository, ignore_errors=True)
            return
        raise ServerError(
            f"cannot fetch {jar}: {problem}.\n"
            "Kafka's jars come from Maven Central, at the first start only. Without a way to it, name a proxy "
            "(HTTPS_PROXY) or a mirror (in jgo's configuration, ~/.config/jgo.conf), or copy the folder "
            f"{self.folder} from a machine that has them; then start again: what has arrived is kept"
        )


class _Counter:
    """Bytes that have arrived, counted over threads."""

    def __init__(self, progress: Progress, total: int) -> None:
        self.done = 0
        self._progress = progress
        self._total = total
        self._lock = threading.Lock()
        progress(0, total)

    def add(self, count: int, *, seen: list[int] | None = None) -> None:
        if seen is not None:
            seen.append(count)
        with self._lock:
            self.done += count
            self._progress(self.done, self._total)


def _download(
    jar: Jar, repository: Path, arrived: Callable[[int], None], repositories: Mapping[str, str] | None
) -> Path:
    from jgo.config import GlobalSettings
    from jgo.maven import MavenContext, PythonResolver
    from jgo.maven._core import DEFAULT_REMOTE_REPOS

    if repositories is None:
        repositories = {**DEFAULT_REMOTE_REPOS, **GlobalSettings.load().repositories}

    @contextmanager
    def progress(_name: str, _size: int) -> Iterator[Callable[[int], None]]:
        yield arrived

    context = MavenContext(
        resolver=PythonResolver(progress_callback=progress),
        repo_cache=repository,
        remote_repos=dict(repositories),
        timeout=30,
    )
    artifact = context.project(jar.group, jar.artifact).at_version(jar.version).artifact()
    return Path(artifact.resolve())


def _identity(path: Path) -> list[int]:
    status = path.stat()
    return [status.st_size, status.st_mtime_ns, status.st_ino]


def _sha256(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def _flush(path: Path) -> None:
    with path.open("rb") as file:
        os.fsync(file.fileno())


def _replace(path: Path, data: bytes) -> None:
    with tempfile.NamedTemporaryFile(dir=path.parent, prefix=path.name, delete=False) as file:
        file.write(data)
    Path(file.name).replace(path)
