"""What a model has answered of a long document is kept, and nobody pays for it twice: real HTTP, real database."""

import asyncio
import json
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import psycopg
import pytest
import sick_servers
from desk import Desk
from local_http import LocalHttp, Received, Reply, serve
from stored import add_document

from offsetzero.api.erasing import Eraser
from offsetzero.consumers.groups import summariser
from offsetzero.retry.failures import Cancelled
from offsetzero.schemas.documents import DocumentUploaded
from offsetzero.settings import LlmSettings, Settings
from offsetzero.store import chunk_results, run_events, run_steps, run_views, runs
from offsetzero.store.documents import Document
from offsetzero.store.run_views import StepView
from offsetzero.store.script import run

PARTS = 9
SIZE = 2_000


class Model:
    """An endpoint that answers with the first word of a text, and fails on those that it is told."""

    def __init__(self) -> None:
        self.asked: list[str] = []
        self.keys: list[str] = []
        self.fails: dict[str, int] = {}
        self.usage: dict[str, int] | None = {"prompt_tokens": 100, "completion_tokens": 5}
        self._lock = threading.Lock()

    def answer(self, received: Received) -> Reply:
        word = json.loads(received.body)["messages"][1]["content"].split()[0]
        with self._lock:
            self.asked.append(word)
            self.keys.append(received.headers["idempotency-key"])
        if word in self.fails:
            return Reply(self.fails[word])
        body: dict[str, Any] = {"model": "small-1", "choices": [{"message": {"content": f"about-{word}"}}]}
        return Reply(200, json.dumps(body | ({"usage": self.usage} if self.usage else {})).encode())

    def took(self) -> list[str]:
        """What it was asked since the last time."""
        asked, self.asked = sorted(self.asked), []
        return asked


ALL = ["about-p0", *(f"p{number}" for number in range(PARTS))]


@pytest.fixture
def model() -> Model:
    return Model()


@pytest.fixture
def endpoint(model: Model) -> Iterator[LocalHttp]:
    with serve(model.answer) as server:
        yield server


@pytest.fixture
def desk(database_url: str, tmp_path: Path, endpoint: LocalHttp) -> Iterator[Desk]:
    made = Desk(_settings(database_url, tmp_path, endpoint.url + "/v1"))
    yield made
    made.pool.close()


def _settings(database_url: str, home: Path, url: str, **more: Any) -> Settings:
    llm = LlmSettings(base_url=url, part_characters=SIZE, **{"model": "small", "parts_at_once": 1, **more})
    return Settings(home=home, database_url=database_url, llm=llm)


@pytest.fixture
def event(desk: Desk) -> DocumentUploaded:
    """A document of some parts, with a run whose summariser is at work."""
    text = "\n\n".join(f"p{number} {'x' * 1_900}" for number in range(PARTS))
    made = desk.document(text.encode(), "long.txt", "text/plain")
    assert made.run_id is not None
    with desk.pool.connection() as connection:
        run(connection, runs.create(made.run_id, "demo", made.document_id, ["summariser"]))
        run(connection, run_steps.start_step(made.run_id, "summariser", 1))
        known = {name: getattr(made, name) for name in ("tenant_id", "name", "content_type", "uri", "size_bytes")}
        document = Document(id=made.document_id, sha256=made.sha256, version=1, uploaded_at=made.uploaded_at, **known)
        add_document(connection, document)
    return made


def _step(desk: Desk, event: DocumentUploaded) -> StepView:
    assert event.run_id is not None
    with desk.pool.connection() as connection:
        view = run(connection, run_views.find("demo", event.run_id))
    assert view is not None
    return view.steps[0]


def test_an_attempt_after_a_failure_asks_for_what_is_missing_alone(
    desk: Desk, event: DocumentUploaded, model: Model
) -> None:
    model.fails = {"p6": 503}
    with pytest.raises(Exception, match="503"):
        desk.summarise(event)
    assert model.took() == [f"p{number}" for number in range(7)]
    step = _step(desk, event)
    assert (step.input_tokens, step.output_tokens, step.estimated_tokens) == (600, 30, 0), "a refusal costs nothing"
    assert (step.parts_done, step.parts) == (6, PARTS)
    model.fails = {}
    desk.summarise(event)
    assert model.took() == ["about-p0", "p6", "p7", "p8"]
    step = _step(desk, event)
    assert (step.input_tokens, step.output_tokens) == (1_000, 50)
    assert (step.parts_done, step.parts) == (PARTS, PARTS)
    columns = "text, model, input_tokens, output_tokens, estimated_tokens"
    assert desk.rows(f"SELECT {columns} FROM summaries") == [("about-about-p0", "small-1", 1_000, 50, 0)]


def test_a_replay_pays_for_nothing_and_another_event_or_model_for_all(
    desk: Desk, event: DocumentUploaded, model: Model
) -> None:
    desk.summarise(event)
    assert model.took() == ALL
    desk.summarise(event, generation=2)
    assert model.took() == [], "a forced replay is the same event"
    desk.summarise(event, "2")
    assert model.took() == ALL, "another event of the same document: somebody wants it anew"
    desk.settings = _settings(
        desk.settings.database_url.get_secret_value(), desk.settings.home, desk.settings.llm.base_url, model="large"
    )
    desk.summarise(event)
    assert model.took() == ALL
    assert len(set(model.keys)) == len(model.keys), "each question has a key of its own"


def test_those_who_follow_the_run_are_told_how_far_it_is(desk: Desk, event: DocumentUploaded) -> None:
    desk.summarise(event)
    assert event.run_id is not None
    with desk.pool.connection() as connection:
        since = run(connection, run_events.since("demo", event.run_id, 0))
    assert since is not None
    told = [one.state["parts_done"] for one in since.events if one.kind == "step" and one.state["parts"]]
    assert told == list(range(PARTS + 1))


def test_what_nobody_has_told_is_estimated_and_marked(desk: Desk, event: DocumentUploaded, model: Model) -> None:
    model.usage = None
    desk.summarise(event)
    step = _step(desk, event)
    assert step.estimated_tokens == (step.input_tokens or 0) + (step.output_tokens or 0) > PARTS * SIZE / 5
    assert desk.rows("SELECT estimated_tokens FROM summaries") == [(step.estimated_tokens,)]


def test_a_cancelled_call_is_counted_as_an_estimate_with_the_parts_that_were_done(
    desk: Desk, event: DocumentUploaded, model: Model
) -> None:
    """term-llm#918: what a model spends for a cancelled run was in no sum."""

    async def main() -> None:
        asked = asyncio.Event()

        async def silent(reader: asyncio.StreamReader, _writer: asyncio.StreamWriter) -> None:
            await sick_servers.request(reader)
            asked.set()
            await reader.read()

        async with sick_servers.serving(silent) as url:
            settings = _settings(desk.settings.database_url.get_secret_value(), desk.settings.home, url)
            desk.settings = settings
            ctx = desk.context(run_id=event.run_id)
            task = asyncio.create_task(summariser.summarise(event, ctx))
            await asyncio.wait_for(asked.wait(), 20)
            assert event.run_id is not None
            with psycopg.connect(settings.database_url.get_secret_value()) as connection:
                assert run(connection, runs.cancel("demo", event.run_id)) is not None
            with pytest.raises(Cancelled):
                await asyncio.wait_for(task, 20)

    model.fails = {"p3": 503}
    with pytest.raises(Exception, match="503"):
        desk.summarise(event)
    asyncio.run(main())
    step = _step(desk, event)
    assert step.status == "cancelled"
    assert step.output_tokens == 15
    assert 400 < (step.estimated_tokens or 0) < 700
    assert step.input_tokens == 300 + (step.estimated_tokens or 0)


def test_an_erasure_deletes_and_counts_what_is_kept(desk: Desk, event: DocumentUploaded) -> None:
    desk.summarise(event)
    with psycopg.connect(desk.settings.database_url.get_secret_value(), autocommit=True) as connection:
        eraser = Eraser(connection, desk.settings)
        assert eraser.document("demo", event.document_id)
        assert eraser.results == PARTS + 1
        assert eraser.document("demo", event.document_id), "again"
        assert eraser.results == PARTS + 1
    assert desk.rows("SELECT 1 FROM chunk_results") == []


def test_an_answer_that_comes_after_the_erasure_is_not_kept(desk: Desk, event: DocumentUploaded, model: Model) -> None:
    plain = model.answer

    def erasing(received: Received) -> Reply:
        if len(model.asked) == 3:
            with psycopg.connect(desk.settings.database_url.get_secret_value(), autocommit=True) as connection:
                assert Eraser(connection, desk.settings).document("demo", event.document_id)
        return plain(received)

    with serve(erasing) as server:
        desk.settings = _settings(desk.settings.database_url.get_secret_value(), desk.settings.home, server.url + "/v1")
        assert desk.summarise(event) == ["the document was deleted before it could be worked on"]
    assert len(model.asked) == 4, "nothing more is asked about it"
    assert desk.rows("SELECT 1 FROM chunk_results") == []
    assert _step(desk, event).input_tokens == 400, "it was paid for all the same"


def test_the_event_of_a_deletion_removes_what_is_kept(desk: Desk, event: DocumentUploaded) -> None:
    desk.summarise(event)
    desk.delete(summariser, event.document_id)
    assert desk.rows("SELECT 1 FROM chunk_results") == []


def test_old_answers_are_deleted(desk: Desk, event: DocumentUploaded) -> None:
    desk.summarise(event)
    with desk.pool.connection() as connection:
        assert run(connection, chunk_results.prune(3600)) == 0
        connection.execute("UPDATE chunk_results SET at = at - interval '2 hours' WHERE text <> 'about-p5'")
        assert run(connection, chunk_results.prune(3600)) == PARTS
        assert run(connection, chunk_results.prune(3600)) == 0
    assert desk.rows("SELECT text FROM chunk_results") == [("about-p5",)]


def test_parts_are_asked_about_at_once_and_no_more_than_that(desk: Desk, event: DocumentUploaded, model: Model) -> None:
    together = threading.Barrier(3)
    plain = model.answer

    def answer(received: Received) -> Reply:
        if b"about-" not in received.body:
            together.wait(20)  # three must be there for any to go on: where fewer ask at once it is broken
        return plain(received)

    with serve(answer) as server:
        url = desk.settings.database_url.get_secret_value()
        desk.settings = _settings(url, desk.settings.home, server.url + "/v1", parts_at_once=3)
        desk.summarise(event)
    assert model.took() == ALL


def test_progress_never_goes_back_within_an_attempt_and_a_step_that_has_ended_shows_none(
    desk: Desk, event: DocumentUploaded
) -> None:
    """Parts that end at one moment are written in any order."""
    run_id = event.run_id
    assert run_id is not None

    def done(count: int, *, begins: bool = False, fence: int = 1) -> int | None:
        with desk.pool.connection() as connection:
            run(connection, runs.progress(run_id, "summariser", count, 9, begins=begins, fence=fence))
        return _step(desk, event).parts_done

    assert [done(3), done(5), done(4), done(1, begins=True), done(2)] == [3, 5, 5, 1, 2]
    assert done(7, fence=2) == 2, "somebody else has the lease"
    with desk.pool.connection() as connection:
        run(connection, run_steps.succeed_step(run_id, "summariser"))
    assert done(9) == 2
