"""The OpenAPI document: whoever makes a client of it knows every answer."""

import ast
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from running_api import Api, running

from offsetzero.api import described, models, schedule_models, webhook_models
from offsetzero.api.app import create_app
from offsetzero.settings import Settings

ROOT = Path(__file__).parents[2]
DOCUMENT = create_app(Settings(database_url="postgresql://nobody@127.0.0.1:1/none")).openapi()
OPERATIONS = [
    pytest.param(method, path, operation, id=operation["operationId"])
    for path, item in DOCUMENT["paths"].items()
    for method, operation in item.items()
]
ONE = "/00000000-0000-0000-0000-000000000000"
JSON = {"Content-Type": "application/json"}
NIGHTLY = {"name": "nightly", "kind": "reindex", "cron": "30 2 * * *"}


def _codes(operation: dict[str, Any]) -> set[str]:
    """The codes that an operation declares, each in the status that it has."""
    found = set()
    for status, response in operation["responses"].items():
        for code in response.get("content", {}).get(described.MEDIA_TYPE, {}).get("examples", {}):
            assert status == str(described.CODES[code][0])
            found.add(code)
    return found


@pytest.mark.parametrize(("method", "path", "operation"), OPERATIONS)
def test_an_operation_has_a_name_a_summary_and_its_errors(method: str, path: str, operation: dict[str, Any]) -> None:
    kinds = "get|list|create|update|delete|upload|search|cancel|reindex|rotate|test|run"
    assert re.fullmatch(rf"({kinds})_[a-z]+", operation["operationId"])
    assert operation["summary"]
    assert operation["security"]
    assert {"key-needed", "key-unknown", "database-unavailable"} <= _codes(operation)
    assert ("not-found" in _codes(operation)) == ("{" in path)
    for status, response in operation["responses"].items():
        if int(status) >= 400:
            assert list(response["content"]) == [described.MEDIA_TYPE]
            assert response["content"][described.MEDIA_TYPE]["schema"] == {"$ref": "#/components/schemas/Problem"}


def test_names_are_used_once_and_every_reference_leads_somewhere() -> None:
    names = [parameter.values[2]["operationId"] for parameter in OPERATIONS]
    assert len(set(names)) == len(names) == 27
    schemas = DOCUMENT["components"]["schemas"]
    assert "HTTPValidationError" not in schemas
    references = set(re.findall(r"#/components/schemas/(\w+)", str(DOCUMENT)))
    assert references == set(schemas), "none is missing, none is left over"
    assert set(schemas["Problem"]["required"]) == {"type", "title", "status", "detail"}


@pytest.mark.parametrize(
    "model",
    [
        models.IntakeAnswer,
        models.DocumentAnswer,
        models.RunAnswer,
        models.SearchAnswer,
        webhook_models.WebhookRequest,
        webhook_models.WebhookAnswer,
        webhook_models.NewWebhookAnswer,
        webhook_models.RotationRequest,
        webhook_models.AttemptAnswer,
        schedule_models.ScheduleRequest,
        schedule_models.ScheduleAnswer,
        schedule_models.FireAnswer,
        schedule_models.ReportAnswer,
    ],
)
def test_an_example_is_an_answer_that_could_be(model: Any) -> None:
    (example,) = DOCUMENT["components"]["schemas"][model.__name__]["examples"]
    assert model.model_validate(example).model_dump(mode="json") == example


def test_every_code_is_in_the_table_and_in_the_page() -> None:
    raised = {}
    for file in (ROOT / "offsetzero" / "api").rglob("*.py"):
        for node in ast.walk(ast.parse(file.read_text())):
            if isinstance(node, ast.Call) and getattr(node.func, "id", "") == "Problem":
                status, code = node.args[:2]
                if isinstance(status, ast.Constant) and isinstance(code, ast.Constant):
                    raised[code.value] = status.value
    known = {code: status for code, (status, _) in described.CODES.items()}
    assert raised.items() <= known.items()
    assert set(known) - set(raised) == {"method-not-allowed"}, "made of the framework's own"
    page = (ROOT / "docs" / "api.md").read_text().partition("## Errors")[2].partition("## ")[0]
    listed = {}
    for status, codes in re.findall(r"^\| (\d{3}) \| (.*) \|$", page, re.MULTILINE):
        listed.update(dict.fromkeys(re.findall(r"`([a-z-]+)`", codes), int(status)))
    assert listed == known


@pytest.fixture
def api(database_url: str, tmp_path: Path) -> Iterator[Api]:
    with running(Settings(home=tmp_path, database_url=database_url, api={"max_upload_bytes": 100})) as api:
        yield api


def _file(name: str, content: bytes, kind: str = "text/plain", field: str = "file") -> dict[str, Any]:
    return {"files": [(field, (name, content, kind))]}


# method, path, what is sent, the code of the answer
REFUSED: list[tuple[str, str, dict[str, Any], str]] = [
    ("post", "/documents", _file("a.txt", b""), "empty-file"),
    ("post", "/documents", _file("a.txt", b"x" * 101), "too-large"),
    ("post", "/documents", _file("a.png", b"x", "image/png"), "unsupported-type"),
    ("post", "/documents", _file("a.txt", b"x", field="other"), "no-file"),
    ("post", "/documents", {"content": b"x", "headers": {"Content-Type": "text/plain"}}, "not-multipart"),
    ("post", "/documents", {"json": {}}, "invalid-request"),
    ("post", "/documents", {"json": {"uri": "s3://other/incoming/demo/a.md"}}, "object-missing"),
    ("post", "/documents", {"content": b'{"uri": ', "headers": JSON}, "malformed-body"),
    ("post", "/documents", {"json": {"uri": "x" * 70_000}}, "too-large"),
    ("post", "/documents", {"headers": {"Idempotency-Key": "two words"}}, "idempotency-key-invalid"),
    ("post", "/documents?force=true", {}, "idempotency-key-needed"),
    ("post", "/documents?force=odd", {}, "invalid-request"),
    ("get", f"/documents{ONE}", {}, "not-found"),
    ("get", "/documents/odd", {}, "invalid-request"),
    ("delete", f"/documents{ONE}", {}, "not-found"),
    ("get", f"/runs{ONE}", {}, "not-found"),
    ("post", f"/documents{ONE}/reindex", {}, "idempotency-key-needed"),
    ("post", f"/documents{ONE}/reindex", {"headers": {"Idempotency-Key": "1"}}, "not-found"),
    ("post", f"/runs{ONE}/cancel", {}, "not-found"),
    ("post", f"/runs{ONE}/cancel", {"headers": {"Idempotency-Key": "1"}}, "idempotency-key-reused"),
    ("get", f"/runs{ONE}/events", {}, "not-found"),
    ("get", "/runs/odd/events", {}, "invalid-request"),
    ("get", "/runs?limit=0", {}, "invalid-request"),
    ("get", "/search?q=%20", {}, "empty-query"),
    ("get", "/search", {}, "invalid-request"),
    ("get", f"/webhooks{ONE}", {}, "not-found"),
    ("delete", f"/webhooks{ONE}", {}, "not-found"),
    ("get", f"/webhooks{ONE}/deliveries", {}, "not-found"),
    ("get", f"/webhooks{ONE}/deliveries?before=odd", {}, "invalid-request"),
    ("post", f"/webhooks{ONE}/test", {}, "not-found"),
    ("post", f"/webhooks{ONE}/secret", {}, "not-found"),
    ("post", f"/webhooks{ONE}/secret", {"json": {"keep_seconds": -1}}, "invalid-request"),
    ("post", f"/webhooks{ONE}/secret", {"content": b"{", "headers": JSON}, "malformed-body"),
    ("patch", f"/webhooks{ONE}", {"json": {}}, "not-found"),
    ("patch", f"/webhooks{ONE}", {"json": {"url": "http://127.0.0.1/"}}, "url-refused"),
    ("patch", f"/webhooks{ONE}", {"json": {"event_types": ["x"]}}, "unknown-event-type"),
    ("patch", f"/webhooks{ONE}", {"json": {"enabled": "perhaps"}}, "invalid-request"),
    ("post", "/webhooks", {"json": {"url": "http://127.0.0.1/"}}, "url-refused"),
    ("post", "/webhooks", {"json": {"url": "https://a.example", "event_types": ["x"]}}, "unknown-event-type"),
    ("post", "/webhooks", {"json": {}}, "invalid-request"),
    ("post", "/webhooks", {"content": b'{"url": ', "headers": JSON}, "malformed-body"),
    ("post", "/webhooks", {"content": b"\xff\xfe", "headers": JSON}, "malformed-body"),
    ("post", "/webhooks", {"content": b"[" * 70_000, "headers": JSON}, "too-large"),
    ("post", "/webhooks", {"content": b"[" * 60_000, "headers": JSON}, "malformed-body"),
    ("post", "/webhooks", {"data": {"url": "https://a.example"}}, "not-json"),
    ("post", "/webhooks", {"content": b'{"url": "https://a.example"}'}, "not-json"),
    ("post", "/webhooks", {}, "invalid-request"),
    ("put", "/webhooks", {}, "method-not-allowed"),
    ("post", "/schedules", {"json": {}}, "invalid-request"),
    ("post", "/schedules", {"json": {"name": "a\0", "kind": "report", "cron": "0 0 * * *"}}, "invalid-request"),
    ("post", "/schedules", {"json": {"name": "a", "kind": "report", "cron": "0 0 * *"}}, "schedule-refused"),
    ("post", "/schedules", {"json": {**NIGHTLY, "zone": "Berlin\0"}}, "schedule-refused"),
    ("post", "/schedules", {"json": {**NIGHTLY, "payload": {}}}, "schedule-refused"),
    ("post", "/schedules", {"json": {**NIGHTLY, "kind": "event"}}, "schedule-refused"),
    ("post", "/schedules", {"json": {**NIGHTLY, "kind": "event", "event_type": "\0"}}, "unknown-event-type"),
    ("post", "/schedules", {"json": {**NIGHTLY, "kind": "event", "event_type": "run.failed"}}, "unknown-event-type"),
    ("post", "/schedules", {"content": b"{", "headers": JSON}, "malformed-body"),
    ("get", f"/schedules{ONE}", {}, "not-found"),
    ("get", "/schedules/odd", {}, "invalid-request"),
    ("patch", f"/schedules{ONE}", {"json": {"paused": True}}, "not-found"),
    ("patch", f"/schedules{ONE}", {"json": {}}, "invalid-request"),
    ("delete", f"/schedules{ONE}", {}, "not-found"),
    ("post", f"/schedules{ONE}/run", {}, "idempotency-key-needed"),
    ("post", f"/schedules{ONE}/run", {"headers": {"Idempotency-Key": "r"}}, "not-found"),
    ("get", f"/schedules{ONE}/fires", {}, "not-found"),
    ("get", "/reports?limit=0", {}, "invalid-request"),
]


def test_an_error_is_the_one_that_is_declared(api: Api) -> None:
    for method, path, sent, code in REFUSED:
        answer = api.client.request(method.upper(), path, **sent)
        assert answer.json()["type"] == f"urn:offsetzero:problem:{code}", (method, path, sent)
        assert (answer.status_code, answer.json()["status"]) == (described.CODES[code][0],) * 2
        assert described.Problem.model_validate(answer.json()).detail
        route = re.sub(r"^/(\w+)/[^?/]+", lambda m: f"/{m[1]}/{{{m[1][:-1]}_id}}", path).partition("?")[0]
        operation = DOCUMENT["paths"][route].get(method)
        assert operation is None or code in _codes(operation), (method, path)


def test_a_refused_type_says_how_to_name_another(api: Api) -> None:
    hints = {
        "notes.rst": "-F 'file=@notes.rst;type=text/plain'",
        "README.md": "-F 'file=@README.md;type=text/markdown'",
        "$(id)'.rst": "-F 'file=@FILE;type=text/plain'",  # it is to be pasted into a shell
    }
    for name, hint in hints.items():
        answer = api.client.post("/documents", **_file(name, b"x", "application/x-odd"))
        assert answer.status_code == 415
        assert answer.json()["detail"].endswith(hint)


def test_the_description_needs_nothing_of_the_internet(api: Api) -> None:
    assert api.anonymous.get("/openapi.json").json()["info"]["title"] == "offsetzero"
    for path in ("/docs", "/redoc"):
        assert api.anonymous.get(path).status_code == 404
