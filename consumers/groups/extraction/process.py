"""One owner of readers, seen from the group's process: started, asked, ended."""

import contextlib
import os
import socket
import subprocess
import sys
from collections.abc import Mapping, Sequence
from dataclasses import asdict

from offsetzero.consumers.groups.extraction import frames
from offsetzero.consumers.groups.extraction.endings import Ending
from offsetzero.consumers.groups.extraction.sandbox import Limits, Network

START_SECONDS = 60.0
"""Seconds in which all readers must be loaded, on a busy machine too."""
_GRACE_SECONDS = 15.0  # beyond a document's time: its owner keeps that time, and ends what overstays
_END_SECONDS = 5.0
_KEPT = ("PATH", "HOME", "LANG", "LANGUAGE", "TZ", "TMPDIR", "LD_LIBRARY_PATH", "SYSTEMROOT")
_KEPT_STARTS = ("LC_", "PYTHON")


class OwnerLost(Exception):
    """The process that owns the readers is gone, or does not answer."""


class OwnerProcess:
    """A process of `offsetzero.consumers.groups.extraction.worker`; used by one thread at a time.

    Args:
        readers: `package.module:attribute`, a mapping from content types to readers.
        ways: to keep readers off the network, the best first.
    """

    def __init__(self, readers: str, ways: Sequence[Network]) -> None:
        self.network: Network | None = None
        """What keeps its readers off the network; None until it has said so."""
        self._connection, theirs = socket.socketpair()
        module = f"{__name__.rpartition('.')[0]}.worker"
        with theirs:
            self._process = subprocess.Popen(
                [sys.executable, "-m", module, str(theirs.fileno()), readers, ",".join(ways)],
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                env=_environment(os.environ),
                pass_fds=(theirs.fileno(),),
                start_new_session=True,  # Ctrl-C is for the group, which finishes what it has begun
            )

    @property
    def pid(self) -> int:
        """Its process id."""
        return self._process.pid

    def await_ready(self) -> Network:
        """Wait until its readers are loaded.

        Raises:
            OwnerLost: it ended, or took longer than `START_SECONDS`.
        """
        if self.network is None:
            self._connection.settimeout(START_SECONDS)
            try:
                said, _, _ = frames.receive(self._connection, 0)
            except (EOFError, OSError) as error:
                raise OwnerLost(f"the process of the readers did not start: {self._said(error)}") from error
            self.network = Network(said["network"])
        return self.network

    def read(self, content_type: str, file: int, limits: Limits) -> tuple[Ending, bytes]:
        """Have a document read: how its reader ended, and what it said.

        Args:
            content_type: which reader to use.
            file: descriptor of the document, which stands at its start.
            limits: of the document.

        Raises:
            OwnerLost: the process is gone, or did not answer in time.
        """
        self.await_ready()
        self._connection.settimeout(limits.wall_seconds + _GRACE_SECONDS)
        try:
            frames.send(self._connection, {"content_type": content_type, "limits": asdict(limits)}, file=file)
            ending, answer, _ = frames.receive(self._connection, limits.output)
        except (EOFError, OSError) as error:
            raise OwnerLost(f"the process of the readers was lost: {self._said(error)}") from error
        return Ending.from_data(ending), answer

    def ask_to_end(self) -> None:
        """Let it end, with what it has begun; any thread may call this."""
        with contextlib.suppress(OSError):
            self._connection.shutdown(socket.SHUT_RDWR)

    def end(self) -> None:
        """End it, and wait until it has ended."""
        self.ask_to_end()
        try:
            self._process.wait(_END_SECONDS)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        self._connection.close()

    def _said(self, error: BaseException) -> str:
        status = self._process.poll()
        return f"exit status {status}" if status is not None else type(error).__name__


def _environment(given: Mapping[str, str]) -> dict[str, str]:
    """What a reader may know: no password and no key is among it."""
    return {name: value for name, value in given.items() if name in _KEPT or name.startswith(_KEPT_STARTS)}
