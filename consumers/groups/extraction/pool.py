"""Readers for many documents at once, each in a process of its own: the one owner of those processes."""

import queue
import threading
from collections.abc import Sequence
from types import TracebackType
from typing import IO

from offsetzero import logs
from offsetzero.consumers.groups.documents.pages import Extracted
from offsetzero.consumers.groups.extraction import endings, results
from offsetzero.consumers.groups.extraction.process import OwnerLost, OwnerProcess
from offsetzero.consumers.groups.extraction.sandbox import Limits, Network
from offsetzero.retry.failures import Transient
from offsetzero.settings import DocumentSettings

READERS = "offsetzero.consumers.groups.documents.readers:READERS"
log = logs.get(__name__)


class ReaderPool:
    """Processes that read documents; any thread may ask for one.

        with ReaderPool(settings.documents) as pool, open("a.pdf", "rb") as file:
            found = pool.read("application/pdf", file)

    A document that crashes its reader, hangs, or wants too much fails alone. When this process dies, however, its
    readers die with it.

    Args:
        settings: how many documents at once, and what each may take.
        readers: `package.module:attribute`, a mapping from content types to readers.
        ways: to keep readers off the network, the best first.
    """

    def __init__(
        self,
        settings: DocumentSettings,
        *,
        readers: str = READERS,
        ways: Sequence[Network] = (Network.SECCOMP, Network.NAMESPACE),
    ) -> None:
        self._limits = Limits(settings.memory, settings.cpu_seconds, settings.wall_seconds, results.MAX_OUTPUT)
        self._size = settings.workers
        self._readers = readers
        self._ways = ways
        self._idle: queue.LifoQueue[OwnerProcess] = queue.LifoQueue()  # the last used is the warmest
        self._all: set[OwnerProcess] = set()
        self._lock = threading.Lock()
        self._closed = False
        self._warned = False

    def __enter__(self) -> "ReaderPool":
        self.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def start(self) -> None:
        """Start all processes; they load their readers meanwhile (about a second)."""
        for _ in range(self._size):
            self._add()

    def close(self) -> None:
        """End all processes, with the documents that they read, and wait until they have ended."""
        with self._lock:
            self._closed = True
            owners = list(self._all)
            self._all.clear()
        for owner in owners:
            owner.ask_to_end()
        for owner in owners:
            owner.end()

    def read(self, content_type: str, file: IO[bytes]) -> Extracted:
        """Have a document read.

        Waits until a process is free: no longer than the documents before it may take.

        Args:
            content_type: which reader to use.
            file: an open file of the system, read from its start.

        Raises:
            Permanent: `unsupported-type`, `password-needed` and others of the readers.
            Poison: `corrupt` and others of the readers; `reader-crashed`, `reader-forbidden`, `too-slow`,
                `too-much-memory`, `too-much-text`.
            Transient: `reader-lost`, `reader-killed`, for reasons outside the document.
            io.UnsupportedOperation: the file is none of the system's, such as `BytesIO`.
        """
        file.flush()
        file.seek(0)
        descriptor = file.fileno()
        owner = self._take()
        try:
            self._warn(owner.await_ready())
            ending, answer = owner.read(content_type, descriptor, self._limits)
        except OwnerLost as error:
            self._replace(owner)
            raise Transient("reader-lost", str(error)) from error
        except BaseException:
            self._replace(owner)  # it may be in the middle of an answer
            raise
        self._idle.put(owner)
        failure = endings.failure(ending, self._limits)
        if failure is not None:
            log.warning("reader ended", reason=failure.reason, **ending.as_data())
            raise failure
        return results.read(answer, endings.too_much_memory(self._limits))

    def pids(self) -> list[int]:
        """The processes, for operators and tests."""
        with self._lock:
            return [owner.pid for owner in self._all]

    def _take(self) -> OwnerProcess:
        while True:
            try:
                return self._idle.get(timeout=1.0)
            except queue.Empty:
                if self._closed:
                    raise Transient("reader-lost", "this process is ending") from None

    def _add(self) -> None:
        owner = OwnerProcess(self._readers, self._ways)
        with self._lock:
            if not self._closed:
                self._all.add(owner)
                self._idle.put(owner)
                return
        owner.end()

    def _replace(self, owner: OwnerProcess) -> None:
        with self._lock:
            mine = owner in self._all
            self._all.discard(owner)
        if mine:  # otherwise close() ends it
            owner.end()
            self._add()

    def _warn(self, network: Network) -> None:
        if network is Network.NOTHING and not self._warned:
            self._warned = True
            log.warning(
                "readers can use the network: this kernel allows neither seccomp nor a network namespace; "
                "see docs/architecture.md"
            )
