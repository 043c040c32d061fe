"""`GET /search` with an endpoint for embeddings: while that is well, slow or sick, or does not have the model."""

import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import vector_server
from desk import Desk
from e2e.test_hybrid_search import CAR, add, opened, with_endpoint
from local_http import Reply
from prometheus_client import REGISTRY
from running_api import Api, running
from vector_server import DIMENSIONS, Vectors

from offsetzero.settings import Settings
from support import wait_until


@pytest.fixture
def server() -> Iterator[Vectors]:
    with vector_server.serving(words=DIMENSIONS) as made:
        yield made


@pytest.fixture
def settings_of(database_url: str, tmp_path: Path, server: Vectors) -> Callable[..., Settings]:
    """Settings of an API whose index has a document with vectors of the model `words`."""
    made = with_endpoint(database_url, tmp_path, server)
    opened(made)
    desk = Desk(made)
    add(desk, CAR, "car.txt")
    desk.pool.close()
    return lambda **more: with_endpoint(database_url, tmp_path, server, **more)


def search(api: Api, query: str = "vehicle") -> dict[str, Any]:
    answer = api.client.get("/search", params={"q": query})
    assert answer.status_code == 200, answer.text
    body: dict[str, Any] = answer.json()
    return body


def how(body: dict[str, Any]) -> tuple[str, str | None, list[str]]:
    return body["method"], body["left_out"], [hit["name"] for hit in body["hits"]]


def counted(left_out: str, method: str = "words") -> float:
    labels = {"method": method, "left_out": left_out}
    return REGISTRY.get_sample_value("offsetzero_searches_total", labels) or 0.0


def test_a_search_is_by_words_and_meaning(settings_of: Callable[..., Settings], server: Vectors) -> None:
    with running(settings_of()) as api:
        before = counted("", "hybrid")
        assert how(search(api)) == ("hybrid", None, ["car.txt"])
        assert counted("", "hybrid") == before + 1
        assert server.texts[-1] == "vehicle"
        calls = server.calls
        assert how(search(api, '"an automobile"')) == ("words", None, ["car.txt"])
        assert how(search(api, "automobile -garage")) == ("words", None, [])
        assert server.calls == calls, "who says which words are meant is asked for nothing else"
        assert api.stranger.get("/search", params={"q": "vehicle"}).json()["hits"] == []


def test_without_an_endpoint_the_answer_says_that_meaning_is_left_out(settings_of: Callable[..., Settings]) -> None:
    with running(settings_of(base_url="")) as api:
        assert how(search(api)) == ("words", "no-endpoint", [])
        assert how(search(api, "garage")) == ("words", "no-endpoint", ["car.txt"])
        assert how(search(api, '"the garage"')) == ("words", None, ["car.txt"])


def test_an_index_without_vectors_is_searched_by_words(database_url: str, tmp_path: Path, server: Vectors) -> None:
    with running(with_endpoint(database_url, tmp_path, server)) as api:
        assert how(search(api)) == ("words", None, [])
        assert server.calls == 0


def test_the_query_gets_its_vector_of_the_generations_model_while_that_is_served(
    settings_of: Callable[..., Settings], server: Vectors
) -> None:
    server.models["newer"] = 3
    with running(settings_of(model="newer", dimensions=3)) as api:
        assert how(search(api)) == ("hybrid", None, ["car.txt"])
        del server.models["words"]
        before = counted("provider-404")
        assert how(search(api, "garage")) == ("words", "provider-404", ["car.txt"])
        assert counted("provider-404") == before + 1


def test_a_silent_or_dripping_endpoint_costs_a_search_its_time_and_no_error(
    settings_of: Callable[..., Settings], server: Vectors
) -> None:
    over = threading.Event()

    def silent(_body: dict[str, Any]) -> Reply | None:
        over.wait(60)
        return None

    with running(settings_of(query_timeout=0.3)) as api:
        try:
            server.instead = silent
            assert how(search(api, "garage")) == ("words", "provider-timeout", ["car.txt"])
        finally:
            over.set()
        server.instead = lambda _body: Reply(200, b" " * 600, seconds_between_bytes=0.1)
        assert how(search(api, "garage")) == ("words", "provider-timeout", ["car.txt"])


@pytest.mark.parametrize(
    ("reply", "reason"),
    [
        (Reply(401), "provider-401"),
        (Reply(403), "provider-403"),
        (Reply(429, headers={"Retry-After": "60"}), "throttled"),
        (Reply(200, b"<html>"), "provider-answer"),
        (Reply(200, b'{"data": [{"index": 0, "embedding": [1.0]}]}'), "provider-dimensions"),
    ],
)
def test_whatever_the_endpoint_answers_a_search_is_answered(
    settings_of: Callable[..., Settings], server: Vectors, reply: Reply, reason: str
) -> None:
    server.instead = lambda _body: reply
    with running(settings_of()) as api:
        assert how(search(api, "garage")) == ("words", reason, ["car.txt"])


def test_an_endpoint_that_fails_is_not_called_for_every_search_and_is_again_once_it_is_well(
    settings_of: Callable[..., Settings], server: Vectors
) -> None:
    def probing(seconds: float) -> Settings:
        settings = settings_of()
        providers = settings.providers.model_copy(update={"probe_seconds": seconds})
        return settings.model_copy(update={"providers": providers})

    server.instead = lambda _body: Reply(503)
    with running(probing(3600.0)) as api:
        wait_until(lambda: search(api)["left_out"] == "provider", what="the breaker opens")
        calls = server.calls
        for _ in range(5):
            assert how(search(api, "garage")) == ("words", "provider", ["car.txt"])
        assert server.calls == calls
    server.instead = lambda _body: None
    with running(probing(0.2)) as api:
        wait_until(lambda: search(api)["method"] == "hybrid", what="meaning is back")
