"""Who is refused because too much is asked, and who never is."""

import asyncio
from collections.abc import Awaitable, Callable

from starlette.types import Message, Receive, Scope, Send

from offsetzero.api.admission import Admitted

MOST = 3
BODY: Message = {"type": "http.request", "body": b"all of it", "more_body": False}


class Asking:
    """Requests to an app that reads the body, and answers when it is told to."""

    def __init__(self) -> None:
        self.goes_on = asyncio.Event()
        self.body = asyncio.Event()
        self.reads = 0
        self.admitted = Admitted(self._app, MOST, "/documents")

    async def _app(self, scope: Scope, receive: Receive, send: Send) -> None:
        await receive()
        await self.goes_on.wait()
        await send({"type": "http.response.start", "status": 200, "headers": []})

    async def ask(self, path: str = "/runs", body: Callable[[], Awaitable[object]] | None = None) -> int:
        statuses: list[int] = []

        async def receive() -> Message:
            self.reads += 1
            if body is not None:
                await body()
            return BODY

        async def send(message: Message) -> None:
            if message["type"] == "http.response.start":
                statuses.append(message["status"])

        await self.admitted({"type": "http", "method": "POST", "path": path}, receive, send)
        return statuses[0]


async def _begun(*asked: Awaitable[int]) -> list["asyncio.Future[int]"]:
    tasks = [asyncio.ensure_future(one) for one in asked]
    for _ in range(3):
        await asyncio.sleep(0)
    return tasks


def test_no_more_are_worked_on_at_once_and_the_body_of_the_others_is_not_read() -> None:
    async def run() -> None:
        asking = Asking()
        working = await _begun(*(asking.ask() for _ in range(MOST)))
        assert [await asking.ask() for _ in range(5)] == [503] * 5
        assert asking.reads == MOST
        asking.goes_on.set()
        assert await asyncio.gather(*working) == [200] * MOST
        assert await asking.ask() == 200

    asyncio.run(run())


def test_uploads_take_nothing_from_others() -> None:
    async def run() -> None:
        asking = Asking()
        uploads = await _begun(*(asking.ask("/documents") for _ in range(MOST)))
        assert await asking.ask("/documents") == 503
        others = await _begun(*(asking.ask("/documents/one/reindex") for _ in range(MOST)))
        assert await asking.ask() == 503
        asking.goes_on.set()
        assert await asyncio.gather(*uploads, *others) == [200] * 2 * MOST

    asyncio.run(run())


def test_probes_and_streams_are_answered_whatever_else_is_asked() -> None:
    async def run() -> None:
        asking = Asking()
        paths = ["/runs"] * MOST + ["/healthz", "/readyz", "/metrics", "/runs/one/events"]
        working = await _begun(*(asking.ask(path) for path in paths))
        assert await asking.ask() == 503
        asking.goes_on.set()
        assert await asyncio.gather(*working) == [200] * len(paths)

    asyncio.run(run())


def test_who_waits_for_its_client_takes_no_place() -> None:
    async def run() -> None:
        asking = Asking()
        slow = await _begun(*(asking.ask(body=asking.body.wait) for _ in range(MOST)))
        quick = await _begun(*(asking.ask() for _ in range(MOST)))
        assert await asking.ask() == 503
        asking.body.set()
        asking.goes_on.set()
        assert await asyncio.gather(*slow, *quick) == [200] * 2 * MOST

    asyncio.run(run())
