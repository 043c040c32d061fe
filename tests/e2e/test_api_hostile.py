"""Whatever is sent to the operations of the OpenAPI document: no 5xx, only answers that are declared, and nothing of
another tenant, whose ids are among what is asked for."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.parse import quote

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from running_api import Api, running

from offsetzero.api.app import create_app
from offsetzero.api.described import MEDIA_TYPE
from offsetzero.settings import Settings

PATHS: dict[str, dict[str, Any]] = create_app(Settings(database_url="postgresql://nobody@127.0.0.1:1/none")).openapi()[
    "paths"
]
OPERATIONS = [(method, path) for path, item in PATHS.items() for method in item]
MARK = "xyzzy4711"
EXAMPLES = 200 * (settings().max_examples // 100)  # a hundred times as many in the profile nightly

_texts = st.text(st.characters(codec="utf-8"), max_size=20)
_odd = st.sampled_from(["", "\0", "true", "succeeded", "9" * 400, "-1", "1e999", "NaN", "%", "..", "'--", "ozk_"])
_values = st.one_of(_odd, _texts, st.integers().map(str), st.uuids().map(str))
_json: st.SearchStrategy[Any] = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | _values | st.just("https://a.example"),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(
            st.sampled_from(["url", "event_types", "name", "kind", "cron", "zone"]) | _texts, inner, max_size=3
        )
    ),
    max_leaves=6,
)
_parts = st.tuples(st.sampled_from(["file", "other", "\xff"]), _texts, st.binary(max_size=40)).map(
    lambda part: (
        f'--b\r\nContent-Disposition: form-data; name="{part[0]}"; filename="{part[1]}.md"\r\n\r\n'.encode()
        + part[2]
        + b"\r\n--b--\r\n"
    )
)
_bodies = st.one_of(_json.map(lambda value: json.dumps(value).encode()), st.binary(max_size=60), _parts)
_kinds = st.sampled_from(
    ["application/json", "multipart/form-data; boundary=b", "multipart/form-data", "text/plain", ""]
)
_keys = st.sampled_from([b'"1"', b"1", b'"', b"a b", b"", b"k" * 300, b"\xff"])


@st.composite
def _requests(draw: st.DrawFn, ids: list[str], operation: tuple[str, str]) -> tuple[str, str, dict[str, Any]]:
    """A request to an operation; every part of it may be anything."""
    method, path = operation
    values = st.sampled_from(ids) | _values
    parameters = PATHS[path][method].get("parameters", [])
    query = {one["name"]: draw(values) for one in parameters if one["in"] == "query" and draw(st.booleans())}
    url = path
    for one in parameters:
        if one["in"] == "path":
            url = url.replace(f"{{{one['name']}}}", quote(draw(values), safe="") or "-")
    headers = {"Content-Type": draw(_kinds).encode()} if method == "post" else {}
    if draw(st.booleans()):
        headers["Idempotency-Key"] = draw(_keys)
    content = draw(_bodies) if method == "post" else None
    return method, path, {"url": url, "params": query, "headers": headers, "content": content}


@pytest.fixture
def api(database_url: str, tmp_path: Path) -> Iterator[Api]:
    limits = {"burst": 1_000_000, "max_upload_bytes": 1_000}
    with running(Settings(home=tmp_path, database_url=database_url, api=limits)) as api:
        yield api


def test_nothing_that_is_sent_breaks_it_or_shows_what_is_anothers(api: Api) -> None:
    upload = api.stranger.post("/documents", files={"file": (f"{MARK}.md", MARK.encode(), "text/markdown")}).json()
    hook = api.stranger.post("/webhooks", json={"url": f"https://{MARK}.example/"}).json()
    nightly = {"name": MARK, "kind": "reindex", "cron": "30 2 * * *"}
    schedule = api.stranger.post("/schedules", json=nightly).json()
    ids = [upload["document_id"], upload["run_id"], hook["id"], schedule["id"]]
    seen: set[tuple[str, str, int]] = set()

    def theirs() -> list[Any]:
        return [
            api.rows("SELECT * FROM documents WHERE tenant_id = 'other'"),
            api.rows(
                "SELECT * FROM runs r JOIN run_steps s ON s.run_id = r.id WHERE tenant_id = 'other' ORDER BY step"
            ),
            api.rows("SELECT * FROM webhooks WHERE tenant_id = 'other'"),
            api.rows(
                "SELECT * FROM schedules s LEFT JOIN schedule_fires f ON f.schedule_id = s.id WHERE tenant_id = 'other'"
            ),
            api.rows("SELECT * FROM outbox WHERE headers ->> 'ce_tenantid' = 'other' ORDER BY id"),
        ]

    before = theirs()

    def send(request: tuple[str, str, dict[str, Any]]) -> None:
        method, path, sent = request
        answer = api.client.request(method.upper(), **sent)
        seen.add((method, path, answer.status_code))
        assert answer.status_code < 500 or answer.json()["type"].endswith(("-unavailable",)), answer.text
        assert MARK not in answer.text
        if answer.status_code < 400:
            assert not [one for one in ids if one in answer.text and one not in str(sent)]
            assert not [one for one in ids if one in sent["url"]], "what is another's is not there"
        else:
            assert answer.headers["content-type"] == MEDIA_TYPE
        declared = PATHS[path][method]["responses"]
        assert str(answer.status_code) in declared or answer.status_code in (404, 405), "a path may become another"

    for operation in OPERATIONS:
        each = settings(max_examples=EXAMPLES // len(OPERATIONS) + 1, deadline=None, database=None)
        each(given(_requests(ids, operation))(send))()
    assert theirs() == before
    assert {(method, path) for method, path, _ in seen} == set(OPERATIONS)
    assert {200, 400, 404, 422} <= {status for _, _, status in seen}
