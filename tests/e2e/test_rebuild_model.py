"""Another model of vectors, as operators change it: the processes of the pipeline, and a rebuild beside them."""

import json
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from typing import Any

import psycopg
import pytest
import vector_server
from e2e.conftest import Pipeline, environment
from local_http import Reply
from vector_server import Vectors

from support import IS_NIGHT, wait_until

OLD, NEW = "old", "new"
DIMENSIONS = {OLD: 64, NEW: 96}
WORDS = ("automobile", "surgeon", "wage", "dwelling")


class Watched:
    """What the server sees: how many calls run at once, and those for the new model wait at a gate."""

    def __init__(self, server: Vectors) -> None:
        self.server = server
        self.gate = threading.Event()
        self.models: list[str] = []
        self.most = self._running = 0
        self._lock = threading.Lock()
        answer, server.http.answer = server.http.answer, self._answer
        self._as_ever = answer

    def _answer(self, received: Any) -> Reply:
        body = json.loads(received.body)
        is_query = body["input"] == ["vehicle"]
        with self._lock:
            self.models.append(body["model"])
            self._running += not is_query
            self.most = max(self.most, self._running)
        try:
            if body["model"] == NEW and not is_query:
                self.gate.wait(120)
            time.sleep(0.0 if is_query else 0.03)  # so that others could come meanwhile
            return self._as_ever(received)
        finally:
            with self._lock:
                self._running -= not is_query


@pytest.fixture
def watched(monkeypatch: pytest.MonkeyPatch) -> Iterator[Watched]:
    with vector_server.serving(**DIMENSIONS) as server:
        made = Watched(server)
        settings = {
            "EMBEDDINGS__BASE_URL": server.url,
            "EMBEDDINGS__BATCH_TEXTS": "1",
            "EMBEDDINGS__QUERY_TIMEOUT": "20",
            "PROVIDERS__LIMITS": '{"embeddings": {"calls": 1}}',
            "API__REQUIRED_STEPS": '["indexer"]',
            **of(OLD),
        }
        for name, value in settings.items():
            monkeypatch.setenv(f"OFFSETZERO_{name}", value)
        yield made
        made.gate.set()


def of(model: str, prefix: str = "") -> dict[str, str]:
    return {f"{prefix}EMBEDDINGS__MODEL": model, f"{prefix}EMBEDDINGS__DIMENSIONS": str(DIMENSIONS[model])}


def rebuild(pipeline: Pipeline, *arguments: str) -> subprocess.Popen[str]:
    env = environment(pipeline.settings, **of(NEW, "OFFSETZERO_"))
    command = [sys.executable, "-m", "offsetzero", *arguments]
    return subprocess.Popen(command, env=env, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)


@pytest.mark.skipif(not IS_NIGHT, reason="ten processes; tests/kafka/test_rebuild_model.py runs by day: make vectors")
def test_a_rebuild_changes_the_model_while_the_old_one_answers(pipeline: Pipeline, watched: Watched) -> None:
    pipeline.start_intake()
    members = [pipeline.start("groups", "run", "indexer") for _ in range(2)]
    texts = [f"{word} " * 300 for word in WORDS]  # two chunks each
    runs = [pipeline.upload(f"{word}.txt", text.encode()) for word, text in zip(WORDS, texts, strict=True)]
    steps = [pipeline.await_run(run["run_id"])["steps"][0] for run in runs]
    assert {step["status"] for step in steps} == {"succeeded"}
    assert sum(step["input_tokens"] for step in steps) == sum(len(text.split()) for text in watched.server.texts) > 1000
    assert watched.most == 1, "over both processes"

    made = rebuild(pipeline, "rebuild", "indexer", "--why", "a better model", "--processes", "1", "--yes")
    wait_until(lambda: NEW in watched.models, 60, what="the new generation asks")
    assert searched(pipeline) == ("hybrid", None, "automobile.txt")
    assert watched.models[-1] == OLD, "the generation that is read has its own"
    watched.gate.set()
    said, _ = made.communicate(timeout=120)
    assert made.returncode == 0, said
    assert "ix_chunk_vectors_embedding" in said
    assert "settings of before" in said
    assert searched(pipeline) == ("hybrid", None, "automobile.txt")
    assert watched.models[-1] == NEW
    for member in members:
        assert member.child.wait(60) == 1
        assert "generation 2 was made with" in member.log
    assert rows(pipeline, "SELECT indisvalid FROM pg_index WHERE indexrelid = %s::regclass", INDEX) == [(True,)]

    asked = list(watched.server.texts)
    again = rebuild(pipeline, "rebuild", "indexer", "--why", "once more", "--processes", "1", "--yes")
    said, _ = again.communicate(timeout=120)
    assert again.returncode == 0, said
    same = rebuild(pipeline, "diff", "indexer", "2", "3")
    said, _ = same.communicate(timeout=60)
    assert (same.returncode, watched.server.texts) == (0, asked), said
    assert rows(pipeline, "SELECT sum(input_tokens) FROM run_steps") == [(sum(one["input_tokens"] for one in steps),)]


INDEX = "indexer_g2.ix_chunk_vectors_embedding"


def rows(pipeline: Pipeline, query: str, *parameters: Any) -> list[tuple[Any, ...]]:
    with psycopg.connect(pipeline.settings.database_url.get_secret_value()) as connection:
        return connection.execute(query.encode(), parameters).fetchall()


def searched(pipeline: Pipeline) -> tuple[str, str | None, str]:
    body = pipeline.client.get("/search", params={"q": "vehicle"}).json()
    return body["method"], body["left_out"], body["hits"][0]["name"]
