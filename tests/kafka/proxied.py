"""A TCP proxy between clients and the broker that keeps one answer to a heartbeat from a client: a real packet, lost.

The broker tells clients where it is (answers to Metadata and FindCoordinator): there the proxy puts its own port, which
has as many bytes, so that nothing of the protocol needs to be written anew.
"""

import contextlib
import socket
import struct
import threading
from collections.abc import Iterator

CONSUMER_GROUP_HEARTBEAT = 68  # the protocol's number of the request
EMPTY = 3  # bytes of an answer's end without a partition: an empty array, no tagged fields twice


class Proxy:
    """Passes bytes on, whole requests and answers at a time; used as a context manager.

    Args:
        host: of the broker, as it names itself.
        port: likewise.
    """

    def __init__(self, host: str, port: int) -> None:
        self._there = host, port
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.port: int = self._listener.getsockname()[1]
        self._written = host.encode() + struct.pack(">i", port), host.encode() + struct.pack(">i", self.port)
        self._lock = threading.Lock()
        self._open: list[socket.socket] = []
        self._told: dict[bytes, tuple[int, bytes]] = {}
        self.loses = False
        """Whether the next such answer is kept: members that join one after the other get some, too."""
        self.lost: list[str] = []
        """The member whose answer was kept from it."""

    def __enter__(self) -> "Proxy":
        threading.Thread(target=self._accept, name="proxy", daemon=True).start()
        return self

    def __exit__(self, *_: object) -> None:
        with self._lock:
            for one in [self._listener, *self._open]:
                with contextlib.suppress(OSError):
                    one.shutdown(socket.SHUT_RDWR)
                one.close()

    def epoch(self, member: str) -> int:
        """The epoch that a member was last told."""
        return self._told[member.encode()][0]

    def _accept(self) -> None:
        with contextlib.suppress(OSError):
            while True:
                near, _ = self._listener.accept()
                far = socket.create_connection(self._there)
                with self._lock:
                    self._open += [near, far]
                asked: dict[int, int] = {}
                for run in (self._requests, self._answers):
                    threading.Thread(target=run, args=(near, far, asked), daemon=True).start()

    def _requests(self, near: socket.socket, far: socket.socket, asked: dict[int, int]) -> None:
        with contextlib.suppress(OSError):
            for frame in _frames(near):
                key, _, correlation = struct.unpack_from(">hhi", frame, 4)
                asked[correlation] = key
                far.sendall(frame)
            far.shutdown(socket.SHUT_RDWR)

    def _answers(self, near: socket.socket, far: socket.socket, asked: dict[int, int]) -> None:
        with contextlib.suppress(OSError):
            for frame in _frames(far):
                (correlation,) = struct.unpack_from(">i", frame, 4)
                if asked.pop(correlation, None) != CONSUMER_GROUP_HEARTBEAT or not self._is_lost(frame):
                    near.sendall(frame.replace(*self._written))
            near.shutdown(socket.SHUT_RDWR)

    def _is_lost(self, frame: bytes) -> bool:
        """The first answer, once one is to be lost, that gives a member with partitions more without a new epoch.

        They are those that another member has given up. An answer with a new epoch may be lost without harm: who comes
        with the old one is fenced, and joins anew.
        """
        at = 4 + 4 + 1 + 4  # length, correlation, no tagged fields of the header, throttle time
        (error,) = struct.unpack_from(">h", frame, at)
        _, at = _string(frame, at + 2)
        member, at = _string(frame, at)
        if error:
            return False
        epoch, _, given = struct.unpack_from(">iib", frame, at)
        before = self._told.get(member, (epoch, b""))
        topics = frame[at + 9 :] if given == 1 else before[1]  # as an array: 1 for none, then their number and one more
        if self.loses and before[0] == epoch and len(topics) > len(before[1]) > EMPTY:
            self.loses = False
            self.lost.append(member.decode())
            return True
        self._told[member] = epoch, topics
        return False


def _frames(of: socket.socket) -> Iterator[bytes]:
    with of.makefile("rb") as stream:
        while len(head := stream.read(4)) == 4:
            (size,) = struct.unpack(">i", head)
            yield head + stream.read(size)


def _string(frame: bytes, at: int) -> tuple[bytes, int]:
    """A compact string, of fewer than 127 bytes, and where it ends; null is empty."""
    size = max(0, frame[at] - 1)
    return frame[at + 1 : at + 1 + size], at + 1 + size
