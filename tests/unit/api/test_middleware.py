"""What is measured of a request."""

import asyncio

import pytest
from starlette.types import Message, Receive, Scope, Send

from offsetzero import metrics
from offsetzero.api.middleware import Observed


@pytest.mark.parametrize(
    ("kind", "seconds"), [(b"text/event-stream; charset=utf-8", 2.0), (b"application/json", 3602.0)]
)
def test_the_time_of_a_stream_is_the_one_to_its_beginning(kind: bytes, seconds: float) -> None:
    """An hour of each of them would hide how long answers take."""
    now = 0.0

    async def app(_scope: Scope, _receive: Receive, send: Send) -> None:
        nonlocal now
        now += 2
        await send({"type": "http.response.start", "status": 200, "headers": [(b"content-type", kind)]})
        now += 3600
        await send({"type": "http.response.body"})

    async def receive() -> Message:
        return {"type": "http.disconnect"}

    async def send(_message: Message) -> None:
        pass

    def total() -> float:
        return metrics.HTTP_SECONDS.labels("GET", "unmatched", "200")._sum.get()

    before = total()
    asyncio.run(Observed(app, lambda: now)({"type": "http", "method": "GET", "headers": []}, receive, send))
    assert total() - before == seconds
