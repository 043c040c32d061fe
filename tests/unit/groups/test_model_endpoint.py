"""Calls of endpoints that do what they should not: each ends in its time, as what it is."""

import asyncio
import time
from collections.abc import Callable
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass, field

import pytest
import sick_servers
from local_http import Reply, serve
from sick_servers import serving

from offsetzero.consumers.groups.model_endpoint import ModelEndpoint, Usage
from offsetzero.retry.classify import classify
from offsetzero.retry.failures import FailureClass
from offsetzero.settings import EndpointSettings

FOR_EVER = 600.0
SOON = 0.2
IN_TIME = 20.0  # on a machine that does much else

LARGE = "x" * 32 * 1024 * 1024
"""More than the kernel takes for somebody who does not read."""

Serving = Callable[[], AbstractAsyncContextManager[str]]
LATE, LOST, NONSENSE = "provider-timeout", "connection", "provider-answer"


@dataclass(frozen=True)
class Sick:
    """What a server does, what is sent to it in which times, and what the call comes to."""

    name: str
    does: sick_servers.Behaviour | None  # None: nothing takes a connection
    reason: str
    detail: str
    times: dict[str, float] = field(default_factory=dict)
    text: str = ""
    sent: bool = True

    def serve(self) -> AbstractAsyncContextManager[str]:
        return sick_servers.full() if self.does is None else serving(self.does)


HALF = b"HTTP/1.1 200 OK\r\nContent-Length: 100\r\n\r\n{"
OPEN = b'HTTP/1.1 200 OK\r\nConnection: close\r\n\r\n{"choices": ['
UNREACHED = "the provider could not be reached"
NO_JSON = "the answer is not JSON"
SICK = [
    Sick("no connection", None, LATE, "no connection within 0.2 s", {"connect": SOON}, sent=False),
    Sick(
        "never reads",
        sick_servers.deaf,
        LATE,
        "the request was not taken within 0.2 s",
        {"write": SOON},
        text=LARGE,
        sent=False,
    ),
    Sick("silent", sick_servers.silent, LATE, "nothing was heard for 0.2 s", {"read": SOON}),
    Sick("silent for long", sick_servers.silent, LATE, "no answer within 0.2 s", {"total": SOON}),
    Sick(
        "a byte a second", sick_servers.dripping(1.0), LATE, "no answer within 1.5 s", {"read": IN_TIME, "total": 1.5}
    ),
    Sick("closes at once", sick_servers.breaking(b""), LOST, UNREACHED),
    Sick("closes in the middle", sick_servers.breaking(HALF), LOST, UNREACHED),
    Sick("closes in the middle, no length", sick_servers.breaking(OPEN), NONSENSE, NO_JSON),
    Sick("no HTTP", sick_servers.breaking(b"\x16\x03\x01"), LOST, UNREACHED),
    Sick("garbage", sick_servers.saying(b"<html>"), NONSENSE, NO_JSON),
    Sick("garbage bytes", sick_servers.saying(b"\xff\xfe\xff"), NONSENSE, NO_JSON),
    Sick("nested", sick_servers.saying(b"[" * 500_000), NONSENSE, NO_JSON),
    Sick("list", sick_servers.saying(b"[1]"), NONSENSE, "the answer is no JSON object"),
    Sick(
        "too large",
        sick_servers.saying(b" " * 2**20 + b"{}"),
        NONSENSE,
        "the answer is larger than 1048576 bytes",
    ),
]


@pytest.mark.parametrize("sick", SICK, ids=[one.name for one in SICK])
def test_a_sick_endpoint_is_a_passing_failure_in_its_time(sick: Sick) -> None:
    sent: list[int] = []

    async def ask() -> None:
        times = {f"{name}_timeout": sick.times.get(name, FOR_EVER) for name in ("connect", "write", "read", "total")}
        async with sick.serve() as url, ModelEndpoint(EndpointSettings(base_url=url, **times)) as endpoint:
            await endpoint.post("chat", {"text": sick.text}, idempotency_key="1", sent=lambda: sent.append(1))

    begun = time.monotonic()
    with pytest.raises(Exception) as caught:  # noqa: PT011 - looked at below
        asyncio.run(ask())
    assert time.monotonic() - begun < IN_TIME
    failure = classify(caught.value)
    assert failure.failure_class is FailureClass.TRANSIENT
    assert (failure.reason, failure.detail) == (sick.reason, sick.detail)
    assert len(sent) == sick.sent, "whether the endpoint was given all of it"


@pytest.mark.parametrize(
    ("status", "expected"),
    [
        (302, FailureClass.PERMANENT),
        (400, FailureClass.PERMANENT),
        (401, FailureClass.PROVIDER_DOWN),
        (429, FailureClass.THROTTLED),
        (503, FailureClass.TRANSIENT),
    ],
)
def test_a_status_is_what_the_taxonomy_makes_of_it(status: int, expected: FailureClass) -> None:
    async def ask(url: str) -> None:
        async with ModelEndpoint(EndpointSettings(base_url=url)) as endpoint:
            await endpoint.post("chat", {}, idempotency_key="1")

    with serve(lambda _received: Reply(status, headers={"Retry-After": "7", "Location": "/"})) as server:
        with pytest.raises(Exception) as caught:  # noqa: PT011 - looked at below
            asyncio.run(ask(server.url))
        assert len(server.received) == 1, "no redirect is followed"
    failure = classify(caught.value)
    assert failure.failure_class is expected
    assert failure.retry_after == (7 if status in (429, 503) else None)


def test_calls_share_a_connection_and_a_cancelled_one_closes_it() -> None:
    async def main() -> tuple[int, bool]:
        connections = 0
        closed = asyncio.Event()
        asked = asyncio.Event()

        async def server(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            nonlocal connections
            connections += 1
            for _ in range(2):
                await sick_servers.request(reader)
                writer.write(b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\n{}")
            await reader.readuntil(b"\r\n\r\n")
            asked.set()
            while await reader.read(65536):
                pass
            closed.set()

        async with serving(server) as url, ModelEndpoint(EndpointSettings(base_url=url)) as endpoint:
            for number in range(2):
                assert await endpoint.post("chat", {}, idempotency_key=str(number)) == {}
            call = asyncio.create_task(endpoint.post("chat", {}, idempotency_key="3"))
            await asyncio.wait_for(asked.wait(), IN_TIME)
            call.cancel()
            await asyncio.wait_for(closed.wait(), IN_TIME)
            return connections, call.cancelled()

    assert asyncio.run(main()) == (1, True)


def test_usage_is_what_the_endpoint_counts() -> None:
    usage = {"prompt_tokens": 7, "completion_tokens": 3}
    assert Usage.of({"usage": usage}) == Usage(7, 3)
    assert Usage.of({"usage": {"prompt_tokens": 7, "total_tokens": 7}}) == Usage(7, None)
    for odd in ({}, {"usage": None}, {"usage": {"prompt_tokens": True, "completion_tokens": -1}}):
        assert Usage.of(odd) == Usage()
