"""A client of server-sent events that is strict about what comes."""

import json
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass
from typing import Any

import httpx


@dataclass(frozen=True)
class Told:
    """One event."""

    id: int
    kind: str
    data: dict[str, Any]


class _Parser:
    """Makes events of lines; a comment is None."""

    def __init__(self) -> None:
        self._fields: dict[str, str] = {}

    def feed(self, line: str) -> tuple[Told | None, ...]:
        if line.startswith(":"):
            return (None,)
        if line:
            name, _, value = line.partition(": ")
            assert name not in self._fields, f"twice in one event: {line}"
            self._fields[name] = value
            return ()
        fields, self._fields = self._fields, {}
        if not fields:  # after a comment
            return ()
        assert fields.keys() == {"id", "event", "data"}, fields
        return (Told(int(fields["id"]), fields["event"], json.loads(fields["data"])),)


def _headers(last: int | str | None) -> dict[str, str]:
    return {} if last is None else {"Last-Event-ID": str(last)}


class Busy(Exception):
    """The server has said to come later."""


def _check(answer: httpx.Response) -> None:
    if answer.status_code == 503:
        raise Busy(answer.headers["retry-after"])
    assert answer.status_code in (200, 204), answer.status_code
    if answer.status_code == 200:
        assert answer.headers["content-type"].partition(";")[0] == "text/event-stream"


@contextmanager
def following(
    client: httpx.Client, run_id: object, last: int | str | None = None
) -> Iterator[Iterator[Told | None] | None]:
    """The events of a run as they come, comments as None; nothing when there is nothing more to come."""
    with client.stream("GET", f"/runs/{run_id}/events", headers=_headers(last), timeout=30) as answer:
        _check(answer)
        parser = _Parser()
        told = (item for line in answer.iter_lines() for item in parser.feed(line))
        yield told if answer.status_code == 200 else None


@asynccontextmanager
async def following_async(
    client: httpx.AsyncClient, run_id: object, last: int | None
) -> AsyncIterator[AsyncIterator[Told | None] | None]:
    """As `following`."""
    async with client.stream("GET", f"/runs/{run_id}/events", headers=_headers(last)) as answer:
        _check(answer)
        parser = _Parser()

        async def told() -> AsyncIterator[Told | None]:
            async for line in answer.aiter_lines():
                for item in parser.feed(line):
                    yield item

        yield told() if answer.status_code == 200 else None
