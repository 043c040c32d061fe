"""`--servers`: which Kafka and PostgreSQL a run of the tests uses."""

import http.server
import json
import threading
from collections.abc import Iterator
from typing import Any

import pytest

import backends
import containers
from backends import Kind, Unavailable


class FakeEngine(http.server.BaseHTTPRequestHandler):
    """Answers as an engine that has the images `images`, beside a registry that it does not reach."""

    images: tuple[str, ...] = ()

    def do_GET(self) -> None:
        path = self.path.partition("?")[0]
        body: Any = {"Version": "1.2.3", "ApiVersion": "1.41"} if path.endswith("/version") else {"message": "no"}
        if path.endswith("/images/json"):
            body = [{"Id": name, "RepoTags": [name]} for name in self.images]
        elif path.startswith("/v1.41/images/"):
            body = {"Id": path, "RepoTags": [path.removeprefix("/v1.41/images/").removesuffix("/json")]}
        content = json.dumps(body).encode()
        self.send_response(500 if "message" in body else 200)
        self.send_header("content-type", "application/json")
        self.send_header("content-length", str(len(content)))
        self.end_headers()
        self.wfile.write(content)

    def log_message(self, *_arguments: object) -> None:
        pass


@pytest.fixture
def engine(monkeypatch: pytest.MonkeyPatch) -> Iterator[type[FakeEngine]]:
    class Engine(FakeEngine):
        pass

    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Engine)
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    monkeypatch.setenv("DOCKER_HOST", f"tcp://127.0.0.1:{server.server_port}")
    yield Engine
    server.shutdown()
    server.server_close()
    thread.join()


@pytest.fixture
def no_engine(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DOCKER_HOST", "unix:///no/such/engine")


def test_an_engine_with_the_images_means_containers(engine: type[FakeEngine]) -> None:
    engine.images = containers.IMAGES
    assert backends.choose(None) == (Kind.CONTAINERS, "Docker engine 1.2.3")


def test_an_engine_that_cannot_get_the_images_means_embedded_and_says_so(engine: type[FakeEngine]) -> None:
    engine.images = containers.IMAGES[:1]
    kind, reason = backends.choose(None)
    assert kind is Kind.EMBEDDED
    assert "cannot pull" in reason


def test_no_engine_means_embedded(no_engine: None) -> None:
    kind, reason = backends.choose(None)
    assert kind is Kind.EMBEDDED
    assert "no Docker engine answers" in reason


def test_embedded_is_embedded_whatever_engine_answers(engine: type[FakeEngine]) -> None:
    engine.images = containers.IMAGES
    assert backends.choose("embedded")[0] is Kind.EMBEDDED


def test_containers_without_an_engine_are_an_error_not_something_else(no_engine: None) -> None:
    with pytest.raises(Unavailable, match="--servers=containers: no Docker engine"):
        backends.choose("containers")


def test_external_servers_must_be_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OZ_TEST_KAFKA", "broker:9092")
    monkeypatch.delenv("OZ_TEST_POSTGRES_URL", raising=False)
    with pytest.raises(Unavailable, match=r"needs OZ_TEST_POSTGRES_URL in the environment"):
        backends.choose("external")
    monkeypatch.setenv("OZ_TEST_POSTGRES_URL", "postgresql://postgres@db/postgres")
    assert backends.choose("external") == (Kind.EXTERNAL, "broker:9092")
