"""Servers on this machine that do not do what HTTP asks of them; each tells what it saw."""

import asyncio
import socket
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import TypeAlias

Behaviour: TypeAlias = Callable[[asyncio.StreamReader, asyncio.StreamWriter], Awaitable[None]]


async def request(reader: asyncio.StreamReader) -> bytes:
    """Read one whole request; gives its body."""
    head = await reader.readuntil(b"\r\n\r\n")
    length = head.lower().partition(b"content-length:")[2].partition(b"\r\n")[0]
    return await reader.readexactly(int(length or 0))


async def silent(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    """Take all of the request and say nothing."""
    while await reader.read(65536):
        pass


def dripping(seconds: float) -> Behaviour:
    """Answer with good headers, then with a space at an interval, without an end."""

    async def drip(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await request(reader)
        writer.write(b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: 1000000\r\n\r\n")
        while True:
            writer.write(b" ")
            await writer.drain()
            await asyncio.sleep(seconds)

    return drip


async def deaf(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    """Read nothing of the request."""
    writer.transport.pause_reading()  # type: ignore[attr-defined]
    await asyncio.Event().wait()


def breaking(said: bytes) -> Behaviour:
    """Say so much, then close."""

    async def close(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await request(reader)
        writer.write(said)
        await writer.drain()

    return close


def saying(body: bytes) -> Behaviour:
    """Answer 200 with a body."""
    head = f"HTTP/1.1 200 OK\r\nContent-Length: {len(body)}\r\nConnection: close\r\n\r\n"
    return breaking(head.encode() + body)


@asynccontextmanager
async def serving(behaviour: Behaviour) -> AsyncIterator[str]:
    """Serve on a free port of 127.0.0.1 until the block ends; gives the base URL."""
    tasks: set[asyncio.Task[None]] = set()

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        tasks.add(task)
        try:
            await behaviour(reader, writer)
        except (OSError, asyncio.IncompleteReadError, asyncio.CancelledError):
            pass  # the client has gone, or the block has ended
        finally:
            tasks.discard(task)
            writer.close()

    server = await asyncio.start_server(serve, "127.0.0.1", 0)
    try:
        yield f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}/v1"
    finally:
        server.close()
        for task in list(tasks):
            task.cancel()
        if tasks:
            await asyncio.wait(tasks, timeout=5)


@asynccontextmanager
async def full() -> AsyncIterator[str]:
    """A port whose queue of connections is full: the kernel answers nobody who wants to open another."""
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        listener.listen(0)
        queued = [socket.socket() for _ in range(4)]
        for one in queued:
            one.setblocking(False)
            one.connect_ex(listener.getsockname())
        try:
            yield f"http://127.0.0.1:{listener.getsockname()[1]}/v1"
        finally:
            for one in queued:
                one.close()
