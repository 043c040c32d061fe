"""The summariser's call of its endpoint, and the run that it is made for: real HTTP, real database."""

import asyncio
import json
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import UTC, datetime
from pathlib import Path
from uuid import UUID, uuid4

import psycopg
import pytest
from local_http import Reply, serve

from offsetzero import logs
from offsetzero.consumers.context import Context, Given, Source
from offsetzero.consumers.groups import summariser
from offsetzero.consumers.groups.documents.pages import Extracted, Page
from offsetzero.retry.failures import Cancelled, Transient
from offsetzero.schemas.documents import DocumentUploaded
from offsetzero.schemas.metadata import Metadata
from offsetzero.settings import Settings
from offsetzero.store import run_steps, run_views, runs
from offsetzero.store.database import pool
from offsetzero.store.run_views import StepView
from offsetzero.store.script import run
from support import PATIENCE, within

ABORT_SECONDS = 1.0


class Endpoint:
    """Takes a request and never answers; knows when it came and when its client went away."""

    def __init__(self) -> None:
        self.asked = asyncio.Event()
        self.left_at: float | None = None
        self.url = ""

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        self.asked.set()
        await reader.read()  # to the end: the client has closed
        self.left_at = time.monotonic()
        writer.close()

    @asynccontextmanager
    async def serving(self) -> AsyncIterator["Endpoint"]:
        async with await asyncio.start_server(self._serve, "127.0.0.1", 0) as server:
            self.url = f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}/v1"
            yield self


@pytest.fixture
def event(monkeypatch: pytest.MonkeyPatch) -> DocumentUploaded:
    monkeypatch.setattr(summariser, "load", lambda _event, _ctx: Extracted([Page(1, "A page of text.", "test")]))
    return DocumentUploaded(
        document_id=uuid4(),
        tenant_id="demo",
        run_id=uuid4(),
        content_type="text/plain",
        uri="file:///nowhere",
        size_bytes=15,
        sha256="0" * 64,
        uploaded_at=datetime.now(UTC),
    )


def _settings(database_url: str, home: Path, url: str) -> Settings:
    return Settings(home=home, database_url=database_url, llm={"base_url": url, "read_timeout": 30})


def _begin(database_url: str, event: DocumentUploaded) -> UUID:
    assert event.run_id is not None
    with psycopg.connect(database_url) as connection:
        run(connection, runs.create(event.run_id, "demo", event.document_id, ["summariser"]))
        run(connection, run_steps.start_step(event.run_id, "summariser", 1))
    return event.run_id


def _step(database_url: str, run_id: UUID) -> StepView:
    with psycopg.connect(database_url) as connection:
        view = run(connection, run_views.find("demo", run_id))
    assert view is not None
    return view.steps[0]


async def _summarise(event: DocumentUploaded, settings: Settings) -> object:
    meta = Metadata(id="1", source="/test", type="document.uploaded", tenant_id="demo", run_id=str(event.run_id))
    given = Given(meta, Source("documents", 0, 0, b"", 0), 1, "key", logs.get("test"))
    with pool(settings, 2) as connections:
        return await summariser.summarise(event, Context(given, settings, connections))


@pytest.mark.timed
def test_the_call_ends_within_a_second_of_the_cancellation(
    database_url: str, tmp_path: Path, event: DocumentUploaded
) -> None:
    """term-llm#918: "cancelled" while the model went on spending."""
    run_id = _begin(database_url, event)

    async def cancel() -> float:
        async with Endpoint().serving() as endpoint:
            call = asyncio.create_task(_summarise(event, _settings(database_url, tmp_path, endpoint.url)))
            await asyncio.wait_for(endpoint.asked.wait(), PATIENCE)
            with psycopg.connect(database_url) as connection:
                assert run(connection, runs.cancel("demo", run_id)) is not None
            cancelled_at = time.monotonic()
            with pytest.raises(Cancelled):
                await asyncio.wait_for(call, PATIENCE)
            async with asyncio.timeout(PATIENCE):
                while endpoint.left_at is None:
                    await asyncio.sleep(0.01)
            return endpoint.left_at - cancelled_at

    within(ABORT_SECONDS, asyncio.run(cancel()), "its end")
    assert _step(database_url, run_id).status == "cancelled"


def test_what_a_call_has_used_is_kept_whatever_becomes_of_it(
    database_url: str, tmp_path: Path, event: DocumentUploaded
) -> None:
    run_id = _begin(database_url, event)

    def answer(content: str) -> Reply:
        usage = {"prompt_tokens": 12, "completion_tokens": 3}
        return Reply(200, json.dumps({"choices": [{"message": {"content": content}}], "usage": usage}).encode())

    def used() -> tuple[str, int | None, int | None]:
        step = _step(database_url, run_id)
        return step.status, step.input_tokens, step.output_tokens

    with serve(lambda _received: answer("")) as server:
        settings = _settings(database_url, tmp_path, server.url + "/v1")
        with pytest.raises(Transient, match="empty"):
            asyncio.run(_summarise(event, settings))
        assert used() == ("running", 12, 3), "the attempt has failed"

        def cancelled(_received: object) -> Reply:
            with psycopg.connect(database_url) as connection:
                run(connection, runs.cancel("demo", run_id))
            return answer("Short.")

        server.answer = cancelled
        asyncio.run(_summarise(event, settings))
    assert used() == ("cancelled", 24, 6), "the answer came too late"
