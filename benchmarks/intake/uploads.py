"""Uploads at a rate, whether or not those before have been answered: each is timed from when it was to begin.

A client of its own, of little more than a socket: httpx takes more of a processor for a request than the API does.
"""

import asyncio
import contextlib
import time
from dataclasses import dataclass

BOUNDARY = b"b0undary"
SECONDS = 60.0  # that an answer may take


@dataclass(frozen=True, slots=True)
class Answer:
    """`at` is when the upload was to begin, seconds after the first; `seconds` from then to the end of its answer."""

    at: float
    seconds: float
    status: int
    body: bytes


class Client:
    """Connections of one tenant to the API on loopback; as many as are needed at once, each used again.

    Args:
        port: of the API.
        key: of the tenant.
    """

    def __init__(self, port: int, key: str) -> None:
        self._port = port
        self._key = key.encode()
        self._idle: list[tuple[asyncio.StreamReader, asyncio.StreamWriter]] = []
        self.opened = 0

    async def upload(self, text: str, query: str = "", key: str | None = None) -> tuple[int, bytes]:
        """Send a document, under an `Idempotency-Key` if any; the status, 0 for none, and the body of the answer."""
        try:
            async with asyncio.timeout(SECONDS):
                reader, writer = await self._connection()
                writer.write(self._request(text, query, key))
                head = await reader.readuntil(b"\r\n\r\n")
                fields = dict(line.lower().split(b": ", 1) for line in head.split(b"\r\n")[1:] if line)
                body = await reader.readexactly(int(fields[b"content-length"]))
        except (OSError, EOFError, TimeoutError, asyncio.IncompleteReadError) as error:
            return 0, repr(error).encode()
        self._idle.append((reader, writer))
        return int(head.split(b" ", 2)[1]), body

    async def close(self) -> None:
        """Close all connections."""
        for _, writer in self._idle:
            writer.close()
            with contextlib.suppress(OSError):
                await writer.wait_closed()

    async def _connection(self) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        while self._idle:
            reader, writer = self._idle.pop()
            if not reader.at_eof():  # the API closes what is idle for long
                return reader, writer
            writer.close()
        self.opened += 1
        return await asyncio.open_connection("127.0.0.1", self._port)

    def _request(self, text: str, query: str, key: str | None) -> bytes:
        part = b'Content-Disposition: form-data; name="file"; filename="a.txt"\r\nContent-Type: text/plain\r\n\r\n'
        body = b"--%b\r\n%b%b\r\n--%b--\r\n" % (BOUNDARY, part, text.encode(), BOUNDARY)
        named = f"Idempotency-Key: {key}\r\n".encode() if key else b""
        return (
            b"POST /documents%b HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer %b\r\n%b"
            b"Content-Type: multipart/form-data; boundary=%b\r\nContent-Length: %d\r\n\r\n%b"
        ) % (query.encode(), self._key, named, BOUNDARY, len(body), body)


async def at_rate(client: Client, texts: list[str], per_second: float, query: str = "") -> list[Answer]:
    """Begin an upload every so often, and wait for all answers."""
    begun = time.perf_counter()

    async def one(number: int, text: str) -> Answer:
        at = number / per_second
        await asyncio.sleep(at - (time.perf_counter() - begun))
        status, body = await client.upload(text, query)
        return Answer(at, time.perf_counter() - begun - at, status, body)

    return list(await asyncio.gather(*(one(number, text) for number, text in enumerate(texts))))


def quantile(values: list[float], share: float) -> float:
    """Of values in any order; the highest for 1.0."""
    ordered = sorted(values)
    return ordered[min(len(ordered) - 1, int(len(ordered) * share))]
