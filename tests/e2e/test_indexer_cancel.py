"""The indexer's call of its endpoint, and the run that it is made for: real HTTP, real database."""

import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import psycopg
import pytest
import vector_server
from desk import Desk
from e2e.test_hybrid_search import CAR, opened, with_endpoint
from local_http import Reply
from vector_server import Vectors

from offsetzero import logs
from offsetzero.consumers.context import Context, Given, Source
from offsetzero.consumers.groups import indexer
from offsetzero.retry.failures import Cancelled
from offsetzero.schemas.documents import DocumentUploaded
from offsetzero.schemas.metadata import Metadata
from offsetzero.store import run_steps, run_views, runs
from offsetzero.store.script import run

LONG = 60.0


class Gate:
    """A server that has been asked, and answers once it may."""

    def __init__(self, server: Vectors) -> None:
        self.server = server
        self.asked, self.may_answer = threading.Event(), threading.Event()
        server.instead = self._instead

    def _instead(self, _body: dict[str, Any]) -> Reply | None:
        self.asked.set()
        self.may_answer.wait(LONG)
        return None


@pytest.fixture
def gate() -> Iterator[Gate]:
    with vector_server.serving() as server:
        made = Gate(server)
        yield made
        made.may_answer.set()


@pytest.fixture
def desk(database_url: str, tmp_path: Path, gate: Gate) -> Iterator[Desk]:
    made = Desk(with_endpoint(database_url, tmp_path, gate.server))
    opened(made.settings)
    yield made
    made.pool.close()


def begun(desk: Desk) -> DocumentUploaded:
    event = desk.document(CAR.encode(), "car.txt", "text/plain")
    with desk.pool.connection() as connection:
        run(connection, runs.create(event.run_id, "demo", event.document_id, ["indexer"]))
        run(connection, run_steps.start_step(event.run_id, "indexer", 1))
    return event


def extract(desk: Desk, event: DocumentUploaded, generation: int) -> object:
    meta = Metadata(id="1", source="/test", type="document.uploaded", tenant_id="demo", run_id=str(event.run_id))
    given = Given(meta, Source("documents", 0, 0, b"", 0), 1, "key", logs.get("test"), generation)
    return indexer.extract(event, Context(given, desk.settings, desk.pool))


def tokens(desk: Desk, event: DocumentUploaded) -> int | None:
    with psycopg.connect(desk.settings.database_url.get_secret_value()) as connection:
        view = run(connection, run_views.find("demo", event.run_id))
    assert view is not None
    return view.steps[0].input_tokens


def test_a_call_ends_with_its_run_and_what_calls_have_used_is_kept(desk: Desk, gate: Gate) -> None:
    first, second = begun(desk), begun(desk)
    with ThreadPoolExecutor() as pool:
        work = pool.submit(extract, desk, first, 1)
        assert gate.asked.wait(LONG)
        with desk.pool.connection() as connection:
            assert run(connection, runs.cancel("demo", first.run_id)) is not None
        with pytest.raises(Cancelled):
            work.result(LONG / 2)  # the server has not answered
    gate.may_answer.set()
    assert extract(desk, second, 1) is not None
    assert (tokens(desk, first), tokens(desk, second)) == (None, len(CAR.split()))


def test_a_generation_that_is_not_read_asks_for_what_was_cancelled_and_charges_no_run(desk: Desk, gate: Gate) -> None:
    event = begun(desk)
    gate.may_answer.set()
    with desk.pool.connection() as connection:
        run(connection, runs.cancel("demo", event.run_id))
    assert extract(desk, event, 2) is not None
    assert (gate.server.texts, tokens(desk, event)) == ([CAR], None)
