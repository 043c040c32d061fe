"""Runs, documents, search and webhooks over HTTP: what a tenant sees, and that no other sees it."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from uuid import UUID

import httpx
import pdfs
import psycopg
import pytest
from running_api import Api, running

from offsetzero.schemas.ids import uuid7
from offsetzero.settings import Settings
from offsetzero.store import generations, index, run_steps, summaries
from offsetzero.store.script import Script, run


@pytest.fixture
def api(database_url: str, tmp_path: Path) -> Iterator[Api]:
    with running(Settings(home=tmp_path, database_url=database_url)) as api:
        yield api


def _do(api: Api, script: Script[Any]) -> Any:
    with psycopg.connect(api.settings.database_url.get_secret_value()) as connection:
        run(connection, generations.read("indexer"))
        return run(connection, script)


def _upload(api: Api, text: str = "A short document.") -> dict[str, str]:
    answer: dict[str, str] = api.client.post(
        "/documents", files={"file": ("a.pdf", pdfs.pdf(text), "application/pdf")}
    ).json()
    return answer


def _indexed(api: Api, *texts: str, tenant: str = "demo", name: str = "a.pdf") -> str:
    document_id = uuid7()
    chunks = [(number, number + 1, text) for number, text in enumerate(texts)]
    _do(api, index.put(document_id, tenant, name, len(texts), chunks))
    return str(document_id)


def _search(api: Api, query: str, **parameters: Any) -> list[dict[str, Any]]:
    response = api.client.get("/search", params={"q": query, **parameters})
    assert response.status_code == 200, response.text
    hits: list[dict[str, Any]] = response.json()["hits"]
    return hits


def test_a_run_shows_its_steps(api: Api) -> None:
    answer = _upload(api)
    run_id = UUID(answer["run_id"])
    _do(api, run_steps.start_step(run_id, "indexer", 1))
    _do(api, run_steps.fail_step(run_id, "indexer", reason="corrupt", detail="It cannot be read."))
    shown = api.client.get(f"/runs/{run_id}").json()
    assert (shown["status"], shown["document_name"]) == ("running", "a.pdf")
    indexer, summariser = shown["steps"]
    assert (indexer["step"], indexer["status"], indexer["attempts"]) == ("indexer", "failed", 1)
    assert (indexer["reason"], indexer["detail"]) == ("corrupt", "It cannot be read.")
    assert (summariser["step"], summariser["status"]) == ("summariser", "queued")


def test_runs_are_paged_newest_first_and_filtered(api: Api) -> None:
    made = [_upload(api, f"Document {number}.")["run_id"] for number in range(5)][::-1]
    first = api.client.get("/runs", params={"limit": 3}).json()
    assert [item["run_id"] for item in first["runs"]] == made[:3]
    rest = api.client.get("/runs", params={"limit": 3, "before": first["next"]}).json()
    assert [item["run_id"] for item in rest["runs"]] == made[3:]
    assert rest["next"] is None
    _do(api, run_steps.start_step(UUID(made[1]), "indexer", 1))
    running_ones = api.client.get("/runs", params={"status": "running"}).json()["runs"]
    assert [item["run_id"] for item in running_ones] == [made[1]]
    document_id = first["runs"][2]["document_id"]
    of_document = api.client.get("/runs", params={"document_id": document_id}).json()["runs"]
    assert [item["run_id"] for item in of_document] == [made[2]]


def test_another_tenants_things_are_not_found(api: Api) -> None:
    answer = _upload(api)
    for path in (f"/documents/{answer['document_id']}", f"/runs/{answer['run_id']}", f"/runs/{uuid7()}"):
        response = api.stranger.get(path)
        assert (response.status_code, response.json()["type"]) == (404, "urn:offsetzero:problem:not-found")
    assert api.stranger.get("/runs").json() == {"runs": [], "next": None}


def test_a_document_has_its_summary_once_it_is_there(api: Api) -> None:
    document_id = _upload(api)["document_id"]
    assert api.client.get(f"/documents/{document_id}").json()["summary"] is None
    _do(api, summaries.put(UUID(document_id), "demo", "In short.", "small", input_tokens=7, output_tokens=2))
    shown = api.client.get(f"/documents/{document_id}").json()
    assert shown["summary"] == "In short."
    assert shown["summary_details"]["model"] == "small"
    assert shown["summary_details"]["input_tokens"] == 7


def test_search_finds_a_tenants_own_documents_best_first(api: Api) -> None:
    weak = _indexed(api, "Travel is mentioned once among many other words about lunch.")
    strong = _indexed(api, "Nothing here.", "Travel, travel, and travel again.", name="strong.pdf")
    _indexed(api, "Travel of another tenant.", tenant="other")
    hits = _search(api, "TRAVEL")
    assert [hit["document_id"] for hit in hits] == [strong, weak]
    assert (hits[0]["name"], hits[0]["page"]) == ("strong.pdf", 2)
    assert hits[0]["snippet"] == "<mark>Travel</mark>, <mark>travel</mark>, and <mark>travel</mark> again"
    assert _search(api, "travel", limit=1, offset=1)[0]["document_id"] == weak


@pytest.mark.parametrize(
    ("query", "found"),
    [
        ('"event log"', True),
        ('"log event"', False),
        ("event -replay", False),
        ("nothing or replay", True),
        ("ﬁnance", True),  # a ligature in the query
        ("Grüße", True),
        ("GRÜSSE", False),
        ("ÖFFNEN", True),
        ("String", True),
        ("حَبيبي", True),
        ("& | ! ( ) :* '", False),
        ('"', False),
        ("it's", True),
    ],
)
def test_queries_are_what_people_write(api: Api, query: str, found: bool) -> None:
    _indexed(api, "An event log with replay; finance, Grüße, öffnen, List<String>, it's حَبيبي habibi")
    assert bool(_search(api, query)) is found


def test_a_snippet_is_safe_html(api: Api) -> None:
    _indexed(api, '<script>alert("x")</script> & a word <b>bold</b>')
    (hit,) = _search(api, "word")
    assert "<mark>word</mark>" in hit["snippet"]
    assert "&amp;" in hit["snippet"]
    assert "<" not in hit["snippet"].replace("<mark>", "").replace("</mark>", "")


def test_a_removed_document_is_not_found(api: Api) -> None:
    document_id = _indexed(api, "Here today.")
    assert _search(api, "today")
    _do(api, index.remove(UUID(document_id), "demo"))
    assert _search(api, "today") == []


@pytest.mark.parametrize(
    ("method", "path", "status"),
    [
        ("GET", "/nothing/here", 404),
        ("PATCH", "/runs", 405),
        ("GET", "/runs/not-a-uuid", 422),
        ("GET", "/runs?limit=0", 422),
        ("GET", "/runs?status=odd", 422),
        ("GET", "/runs?cursor=odd&before=", 422),
        ("GET", "/webhooks?x", 422),
        ("GET", "/search", 422),
        ("GET", "/search?q=%00%20", 422),
        ("GET", "/search?q=" + "x" * 501, 422),
        ("POST", "/webhooks", 422),
    ],
)
def test_every_error_is_a_problem(api: Api, method: str, path: str, status: int) -> None:
    response = api.client.request(method, path)
    assert response.status_code == status
    assert response.headers["content-type"] == "application/problem+json"
    assert response.json()["status"] == status
    assert status != 405 or response.headers["allow"] == "GET"


def test_a_parameter_that_does_not_exist_is_named_with_those_that_do(api: Api) -> None:
    answer = api.client.get("/runs?cursor=x&cursor=y&limit=1&Status=queued").json()
    known = "there are before, document_id, limit, status"
    assert answer["detail"] == f"no such parameter: query.cursor, query.Status; {known}"
    assert answer["errors"] == [{"at": "query.cursor", "detail": known}, {"at": "query.Status", "detail": known}]
    assert api.client.get("/runs?limit=1&status=queued").status_code == 200
    assert api.anonymous.get("/healthz?x=1").status_code == 200  # whoever asks that may have his own


def test_what_is_nowhere_is_told_where_to_look(api: Api) -> None:
    assert "/openapi.json" in api.client.get("/nothing/here").json()["detail"]
    assert api.client.patch("/documents").json()["detail"] == "this path has POST"


def test_webhooks_come_and_go(api: Api) -> None:
    created = api.client.post("/webhooks", json={"url": "https://receiver.example/hook"})
    assert created.status_code == 201
    body = created.json()
    assert body["secret"].startswith("whsec_")
    assert body["event_types"] == ["run.succeeded", "run.failed", "run.cancelled"]
    (listed,) = api.client.get("/webhooks").json()["webhooks"]
    assert "secret" not in listed
    assert listed == {name: value for name, value in body.items() if name != "secret"}
    assert api.stranger.get("/webhooks").json() == {"webhooks": []}
    assert api.stranger.delete(f"/webhooks/{body['id']}").status_code == 404
    assert api.client.delete(f"/webhooks/{body['id']}").status_code == 204
    assert api.client.get("/webhooks").json() == {"webhooks": []}


@pytest.mark.parametrize(
    ("body", "code"),
    [
        ({"url": "http://receiver.example/"}, "url-refused"),
        ({"url": "https://169.254.169.254/latest"}, "url-refused"),
        ({"url": "https://receiver.example/", "event_types": ["run.odd"]}, "unknown-event-type"),
        ({"url": "https://receiver.example/", "event_types": []}, "invalid-request"),
        ({"url": "https://receiver.example/", "more": 1}, "invalid-request"),
        ({"url": 7}, "invalid-request"),
        ({"url": "https://receiver.example:65536/"}, "url-refused"),
        ({"url": "https://receiver.example/", "event_types": ["\ud800"]}, "unknown-event-type"),
    ],
)
def test_a_webhook_that_cannot_work_is_refused(api: Api, body: dict[str, Any], code: str) -> None:
    response = api.client.post("/webhooks", content=json.dumps(body), headers={"Content-Type": "application/json"})
    assert (response.status_code, response.json()["type"]) == (422, f"urn:offsetzero:problem:{code}")
    assert api.rows("SELECT 1 FROM webhooks") == []


def test_a_tenant_has_a_bounded_number_of_webhooks(api: Api) -> None:
    answers = [api.client.post("/webhooks", json={"url": f"https://receiver.example/{n}"}) for n in range(21)]
    assert [answer.status_code for answer in answers] == [201] * 20 + [409]


def test_metrics_name_routes_not_documents(api: Api) -> None:
    api.client.get(f"/documents/{uuid7()}")
    api.client.get("/nothing/here")
    shown = api.anonymous.get("/metrics").text
    labels = 'method="GET",route="/documents/{document_id}",status="404"'
    assert f"offsetzero_http_request_seconds_count{{{labels}}}" in shown
    assert 'route="unmatched",status="404"' in shown


def test_the_openapi_document_tells_of_the_upload(api: Api) -> None:
    document = api.anonymous.get("/openapi.json").json()
    form = document["paths"]["/documents"]["post"]["requestBody"]["content"]["multipart/form-data"]
    assert form["schema"]["required"] == ["file"]
    assert "/healthz" not in document["paths"]


def test_a_revoked_key_ends_at_once(api: Api) -> None:
    assert api.client.get("/runs").status_code == 200
    with psycopg.connect(api.settings.database_url.get_secret_value()) as connection:
        connection.execute("UPDATE api_keys SET revoked_at = now() WHERE tenant_id = 'demo'")
    response = api.client.get("/runs")
    assert (response.status_code, response.json()["type"]) == (401, "urn:offsetzero:problem:key-unknown")


def test_the_api_survives_a_lost_connection(api: Api, postgres_url: str) -> None:
    """A request after a restart of PostgreSQL must not get a dead connection."""
    assert api.client.get("/runs").status_code == 200
    with psycopg.connect(postgres_url, autocommit=True) as connection:
        name = httpx.URL(api.settings.database_url.get_secret_value()).path.strip("/")
        connection.execute(
            "SELECT pg_terminate_backend(pid, 30000) FROM pg_stat_activity "
            "WHERE datname = %s AND application_name = 'offsetzero-api'",
            (name,),
        )
    assert api.client.get("/runs").status_code == 200


def test_a_large_json_body_is_refused_before_it_is_read_whole(api: Api) -> None:
    body = b'{"url": "' + b"x" * 200_000 + b'"}'
    for client in (api.client, httpx.Client(base_url=api.client.base_url)):
        response = client.post("/webhooks", content=body, headers={"Content-Type": "application/json"})
        assert response.status_code == 413
        assert response.json()["type"] == "urn:offsetzero:problem:too-large"
