"""The feature levels of Kafka's metadata: data of an older Kafka are brought to what this one writes.

A broker goes on with the levels its data were made with; below `group.version` 1 it refuses the groups of KIP-848.
Kafka's own tool for this is not among the broker's jars, and no client library for Python has the call, so the two
requests are written here by the protocol: https://kafka.apache.org/protocol (ApiVersions 4, UpdateFeatures 1).
"""

import socket
import struct
import time
from dataclasses import dataclass

from offsetzero.embedded import ports
from offsetzero.errors import ServerError

_NOT_OURS = frozenset({"kraft.version"})  # about quorums of several nodes; refused where the voter is configured
_API_VERSIONS, _UPDATE_FEATURES = (18, 4), (57, 1)  # ApiVersions 3 leaves out features that begin at level 0
_SECONDS = 30.0
_UPGRADE = 1
_MAX_ANSWER = 16 * 1024 * 1024


@dataclass(frozen=True, slots=True)
class Levels:
    """Of each feature, the highest level that the broker supports and the level in force."""

    supported: dict[str, int]
    finalized: dict[str, int]

    def behind(self) -> dict[str, int]:
        """The features that are below what the broker supports, with that level."""
        return {
            name: highest
            for name, highest in self.supported.items()
            if name not in _NOT_OURS and self.finalized.get(name, 0) < highest
        }


def upgrade(port: int) -> dict[str, int]:
    """Raise the feature levels of a broker on loopback.

    Returns:
        What was raised, to which level.

    Raises:
        ServerError: the broker refuses, or does not answer.
    """
    try:
        with socket.create_connection((ports.HOST, port), timeout=_SECONDS) as connection:
            behind = levels(connection).behind()
            if behind:
                _update(connection, behind)
                deadline = time.monotonic() + _SECONDS
                while levels(connection).behind():  # the broker learns of it from the metadata log
                    if time.monotonic() > deadline:
                        raise ServerError(f"Kafka accepted new feature levels, and does not follow them: {behind}")
                    time.sleep(0.05)
            return behind
    except (OSError, struct.error, IndexError) as error:
        raise ServerError(f"Kafka's feature levels cannot be read or raised: {error!r}") from error


def levels(connection: socket.socket) -> Levels:
    """Ask a broker."""
    reader = _call(connection, _API_VERSIONS, _text("offsetzero") + _text("1") + b"\0", tagged_header=False)
    reader.check("ApiVersions")
    for _ in range(reader.length()):
        reader.take("!hhh")
        reader.skip_tags()
    reader.take("!i")
    supported: dict[str, int] = {}
    finalized: dict[str, int] = {}
    for _ in range(reader.varint()):
        tag, size = reader.varint(), reader.varint()
        end = reader.at + size
        if tag in (0, 2):  # supported: lowest, highest; finalized: highest, lowest
            for _ in range(reader.length()):
                name, (first, second) = reader.text(), reader.take("!hh")
                reader.skip_tags()
                (supported if tag == 0 else finalized)[name] = second if tag == 0 else first
        reader.at = end
    return Levels(supported, finalized)


def _update(connection: socket.socket, wanted: dict[str, int]) -> None:
    updates = b"".join(_text(name) + struct.pack("!hb", level, _UPGRADE) + b"\0" for name, level in wanted.items())
    body = struct.pack("!i", int(_SECONDS * 1000)) + _varint(len(wanted) + 1) + updates + b"\0\0"
    reader = _call(connection, _UPDATE_FEATURES, body, tagged_header=True)
    reader.take("!i")
    reader.check("UpdateFeatures")
    for _ in range(reader.length()):
        name = reader.text()
        reader.check(f"UpdateFeatures of {name}")
        reader.skip_tags()


def _call(connection: socket.socket, api: tuple[int, int], body: bytes, *, tagged_header: bool) -> "_Reader":
    request = struct.pack("!hhih", *api, 1, -1) + b"\0" + body
    connection.sendall(struct.pack("!i", len(request)) + request)
    (size,) = struct.unpack("!i", _exactly(connection, 4))
    if not 4 <= size <= _MAX_ANSWER:
        raise OSError(f"an answer of {size} bytes is not Kafka's")
    reader = _Reader(_exactly(connection, size))
    reader.take("!i")
    if tagged_header:
        reader.skip_tags()
    return reader


def _exactly(connection: socket.socket, count: int) -> bytes:
    data = b""
    while len(data) < count:
        more = connection.recv(count - len(data))
        if not more:
            raise OSError("the broker closed the connection")
        data += more
    return data


class _Reader:
    """Reads a flexible answer of Kafka's protocol."""

    def __init__(self, data: bytes) -> None:
        self.data = data
        self.at = 0

    def take(self, form: str) -> tuple[int, ...]:
        values = struct.unpack_from(form, self.data, self.at)
        self.at += struct.calcsize(form)
        return values

    def varint(self) -> int:
        value = shift = 0
        while True:
            byte = self.data[self.at]
            self.at += 1
            value |= (byte & 0x7F) << shift
            if byte < 0x80:
                return value
            shift += 7

    def length(self) -> int:
        return max(0, self.varint() - 1)

    def text(self) -> str:
        size = self.length()
        self.at += size
        return self.data[self.at - size : self.at].decode()

    def skip_tags(self) -> None:
        for _ in range(self.varint()):
            self.varint()
            size = self.varint()
            self.at += size

    def check(self, what: str) -> None:
        """Read an error code, and where there is one, its message."""
        (code,) = self.take("!h")
        said = self.text() if what.startswith("UpdateFeatures") else ""
        if code:
            raise ServerError(f"Kafka refuses {what}: error {code} {said}".rstrip())


def _varint(value: int) -> bytes:
    data = b""
    while value >= 0x80:
        data += bytes([value & 0x7F | 0x80])
        value >>= 7
    return data + bytes([value])


def _text(value: str) -> bytes:
    return _varint(len(value.encode()) + 1) + value.encode()
