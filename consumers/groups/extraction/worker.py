"""The owner of readers: a process that has every reader loaded, and forks itself for each document.

    python -m offsetzero.consumers.groups.extraction.worker DESCRIPTOR MODULE:READERS WAYS

It never looks at a document itself, has one thread, and ends when the process that started it closes its end of the
socket, by intent or by dying. A fork costs milliseconds, and each document begins with a clean memory.
"""

import gc
import importlib
import os
import signal
import socket
import sys
from collections.abc import Mapping
from typing import Any, NoReturn

from offsetzero.consumers.groups.documents.pages import Reader
from offsetzero.consumers.groups.extraction import child, frames, sandbox, supervise
from offsetzero.consumers.groups.extraction.sandbox import Limits, Network

DOCUMENT, ANSWER = sandbox.OPEN_FILES - 2, sandbox.OPEN_FILES - 1
"""Descriptors of a reader's process; it has no other but /dev/null."""
_MOST_OPEN = 1024  # no descriptor of this process is higher


def main() -> None:
    """Serve documents until the socket is closed."""
    for number in (signal.SIGTERM, signal.SIGINT):  # the group finishes what it has begun, and so does this
        signal.signal(number, signal.SIG_IGN)
    given, name, ways = sys.argv[1:4]
    connection = socket.socket(fileno=os.dup(int(given)))
    os.close(int(given))
    owner = Owner(_load(name), sandbox.protect_owner([Network(way) for way in ways.split(",") if way]))
    gc.collect()
    gc.freeze()  # no collection in a fork touches, and so copies, what is loaded here
    try:
        frames.send(connection, {"network": owner.network.value})
        while True:
            job, _, file = frames.receive(connection, 0)
            if file is None:
                return
            owner.read(connection, file, job)
    except (EOFError, OSError):  # the group is gone
        return


class Owner:
    """Has documents read.

    Args:
        readers: by content type.
        network: what keeps the readers' processes off the network.
    """

    def __init__(self, readers: Mapping[str, Reader], network: Network) -> None:
        self.readers = readers
        self.network = network

    def read(self, connection: socket.socket, file: int, job: dict[str, Any]) -> None:
        """Have one document read, and answer how that ended and what it gave; closes the file."""
        limits = Limits(**job["limits"])
        reading, writing = os.pipe()
        own = os.getpid()
        pid = os.fork()
        if pid == 0:
            self._become_reader(file, writing, job["content_type"], limits, own)
        os.close(writing)
        os.close(file)
        try:
            ending, answer = supervise.until_end(pid, reading, connection.fileno(), limits)
        finally:
            os.close(reading)
            supervise.end_orphans()
        frames.send(connection, ending.as_data(), answer)

    def _become_reader(self, file: int, writing: int, content_type: str, limits: Limits, owner: int) -> NoReturn:
        """In the forked process: keep nothing open but the document and the pipe, then read."""
        try:
            os.setsid()
            nothing = os.open(os.devnull, os.O_RDWR)
            for standard in (0, 1, 2):
                os.dup2(nothing, standard)
            os.dup2(file, DOCUMENT)
            os.dup2(writing, ANSWER)
            os.closerange(3, DOCUMENT)
            os.closerange(ANSWER + 1, _MOST_OPEN)
            child.run(DOCUMENT, ANSWER, content_type, self.readers, limits, self.network, owner)
        finally:
            os._exit(1)


def _load(name: str) -> Mapping[str, Reader]:
    module, _, attribute = name.partition(":")
    readers: Mapping[str, Reader] = getattr(importlib.import_module(module), attribute)
    return readers


if __name__ == "__main__":
    main()
