"""Messages between a group's process and its readers' owner: a header in JSON, bytes, and one open file."""

import json
import socket
import struct
from typing import Any

_LENGTHS = struct.Struct(">II")  # of header and body
_MAX_HEADER = 64 * 1024


def send(connection: socket.socket, header: dict[str, Any], body: bytes = b"", *, file: int | None = None) -> None:
    """Send a message, with an open file if one is given."""
    data = json.dumps(header).encode()
    start = _LENGTHS.pack(len(data), len(body))
    if file is None:
        connection.sendall(start)
    else:
        socket.send_fds(connection, [start], [file])
    connection.sendall(data)
    connection.sendall(body)


def receive(connection: socket.socket, most: int) -> tuple[dict[str, Any], bytes, int | None]:
    """Receive a message: header, body of at most `most` bytes, and the file that came with it.

    Raises:
        EOFError: the other side is gone.
        OSError: as the socket says; TimeoutError among them.
    """
    start, files, _flags, _address = socket.recv_fds(connection, _LENGTHS.size, 1)
    file = files[0] if files else None
    start += _exactly(connection, _LENGTHS.size - len(start)) if start else b""
    if not start:
        raise EOFError
    header_length, body_length = _LENGTHS.unpack(start)
    if header_length > _MAX_HEADER or body_length > most:
        raise EOFError("a message that is too long")
    header: dict[str, Any] = json.loads(_exactly(connection, header_length))
    return header, _exactly(connection, body_length), file


def _exactly(connection: socket.socket, length: int) -> bytes:
    data = bytearray(length)
    view = memoryview(data)
    while view:
        received = connection.recv_into(view)
        if received == 0:
            raise EOFError
        view = view[received:]
    return bytes(data)
