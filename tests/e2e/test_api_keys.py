"""What a key may do, and how often a tenant may ask."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import httpx
import psycopg
import pytest
from running_api import Api, running

from offsetzero.api.app import create_app
from offsetzero.settings import Settings
from offsetzero.store.tenants import Role, create_key

OPERATIONS = [
    (method, path.replace("{", "").replace("}", ""))
    for path, item in create_app(Settings(database_url="postgresql://nobody@127.0.0.1:1/none"))
    .openapi()["paths"]
    .items()
    for method in item
]


@contextmanager
def _with_role(api: Api, role: Role) -> Iterator[httpx.Client]:
    with psycopg.connect(api.settings.database_url.get_secret_value()) as connection:
        key = create_key(connection, "demo", role=role)
    with httpx.Client(base_url=api.client.base_url, headers={"Authorization": f"Bearer {key}"}) as client:
        yield client


@pytest.fixture
def api(database_url: str, tmp_path: Path, request: pytest.FixtureRequest) -> Iterator[Api]:
    limits: dict[str, Any] = getattr(request, "param", {})
    with running(Settings(home=tmp_path, database_url=database_url, api=limits)) as api:
        yield api


def test_a_reader_may_read_and_nothing_else(api: Api) -> None:
    refused = {403: 0, 0: 0}
    with _with_role(api, Role.READER) as reader:
        for method, path in OPERATIONS:
            answer = reader.request(method, path)
            assert (answer.status_code == 403) == (method != "get"), (method, path, answer.text)
            refused[403 if method != "get" else 0] += 1
            if method != "get":
                assert answer.json()["type"] == "urn:offsetzero:problem:read-only-key"
    assert refused[403] >= 6
    assert refused[0] >= 8
    with _with_role(api, Role.WRITER) as writer:
        assert writer.post("/documents", files={"file": ("a.md", b"# A page", "text/markdown")}).status_code == 202


@pytest.mark.parametrize("api", [{"requests_per_second": 2, "burst": 5}], indirect=True)
def test_who_asks_too_often_is_told_when_to_come_back(api: Api) -> None:
    answers = [api.client.get("/runs") for _ in range(20)]
    statuses = [answer.status_code for answer in answers]
    assert statuses[:5] == [200] * 5
    assert set(statuses[5:]) == {200, 429} or set(statuses[5:]) == {429}
    refused = next(answer for answer in answers if answer.status_code == 429)
    assert refused.json()["type"] == "urn:offsetzero:problem:too-many-requests"
    assert int(refused.headers["retry-after"]) == 1
    assert api.stranger.get("/runs").status_code == 200, "another tenant is not held up"
    assert api.anonymous.get("/healthz").status_code == 200
