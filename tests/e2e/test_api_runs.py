"""Runs over HTTP: cancelled, and started once more for a document as it is."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any
from uuid import UUID

import httpx
import psycopg
import pytest
from running_api import Api, running

from offsetzero.schemas.codec import Codec
from offsetzero.schemas.documents import DocumentUploaded
from offsetzero.schemas.runs import RunCancelled
from offsetzero.settings import Settings
from offsetzero.store import run_steps
from offsetzero.store.script import run

KEY = {"Idempotency-Key": "1"}


@pytest.fixture
def api(database_url: str, tmp_path: Path) -> Iterator[Api]:
    with running(Settings(home=tmp_path, database_url=database_url)) as api:
        yield api


def _upload(api: Api) -> dict[str, Any]:
    answer = api.client.post("/documents", files={"file": ("a.md", b"# A page", "text/markdown")})
    assert answer.status_code == 202
    body: dict[str, Any] = answer.json()
    return body


def _told(api: Api, event_type: str) -> list[Any]:
    rows = api.rows("SELECT payload FROM outbox WHERE type = %s ORDER BY id", event_type)
    return [Codec().decode(event_type, payload) for (payload,) in rows]


def _code(response: httpx.Response) -> tuple[int, str]:
    return response.status_code, response.json()["type"].rpartition(":")[2]


def test_a_run_is_cancelled_at_once_and_said_to_be_once(api: Api) -> None:
    upload = _upload(api)
    path = f"/runs/{upload['run_id']}/cancel"
    assert _code(api.stranger.post(path)) == (404, "not-found")
    first = api.client.post(path, headers=KEY)
    assert first.status_code == 200
    shown = first.json()
    assert shown == api.client.get(f"/runs/{upload['run_id']}").json()
    assert (shown["status"], {step["status"] for step in shown["steps"]}) == ("cancelled", {"cancelled"})
    assert shown["finished_at"]
    replayed = api.client.post(path, headers=KEY)
    assert (replayed.content, replayed.headers["idempotent-replayed"]) == (first.content, "true")
    assert api.client.post(path).json() == shown, "also without a key it does no harm"
    (event,) = _told(api, "run.cancelled")
    assert isinstance(event, RunCancelled)
    assert (str(event.run_id), str(event.document_id)) == (upload["run_id"], upload["document_id"])
    assert api.client.get("/runs", params={"status": "cancelled"}).json()["runs"] == [shown]


def test_a_run_that_has_ended_is_not_cancelled(api: Api) -> None:
    run_id = _upload(api)["run_id"]
    with psycopg.connect(api.settings.database_url.get_secret_value()) as connection:
        for step in ("indexer", "summariser"):
            run(connection, run_steps.succeed_step(UUID(run_id), step))
    assert _code(api.client.post(f"/runs/{run_id}/cancel")) == (409, "run-ended")
    assert api.client.get(f"/runs/{run_id}").json()["status"] == "succeeded"
    assert _told(api, "run.cancelled") == []


def test_a_document_is_worked_on_once_more_as_it_is(api: Api) -> None:
    upload = _upload(api)
    path = f"/documents/{upload['document_id']}/reindex"
    before = api.client.get(f"/documents/{upload['document_id']}").json()
    assert _code(api.client.post(path)) == (400, "idempotency-key-needed")
    assert _code(api.stranger.post(path, headers=KEY)) == (404, "not-found")
    again = api.client.post(path, headers=KEY)
    assert again.status_code == 202
    assert again.json() == {**upload, "run_id": again.json()["run_id"], "status": "queued"}
    assert again.json()["run_id"] != upload["run_id"]
    assert again.headers["location"] == f"/runs/{again.json()['run_id']}"
    assert api.client.post(path, headers=KEY).content == again.content
    assert api.client.get(f"/documents/{upload['document_id']}").json() == before
    first, second = _told(api, "document.uploaded")
    assert isinstance(second, DocumentUploaded)
    assert second.model_copy(update={"run_id": first.run_id}) == first
    assert str(second.run_id) == again.json()["run_id"]
    told = api.rows("SELECT headers ->> 'ce_sequence' FROM outbox ORDER BY id")
    assert told == [("1",), ("2",)]
    assert api.client.delete(f"/documents/{upload['document_id']}").status_code == 204
    assert _code(api.client.post(path, headers={"Idempotency-Key": "2"})) == (404, "not-found")


def test_pages_of_runs_hold_each_once_while_new_ones_come(api: Api) -> None:
    document_id = _upload(api)["document_id"]

    def again(number: int) -> str:
        headers = {"Idempotency-Key": str(number)}
        return str(api.client.post(f"/documents/{document_id}/reindex", headers=headers).json()["run_id"])

    for number in range(6):
        again(number)
    known = [shown["run_id"] for shown in api.client.get("/runs").json()["runs"]]
    assert len(known) == 7
    seen: list[str] = []
    before: dict[str, Any] = {}
    while True:
        page = api.client.get("/runs", params={"limit": 3, "document_id": document_id, **before}).json()
        seen += [shown["run_id"] for shown in page["runs"]]
        again(100 + len(seen))
        if page["next"] is None:
            break
        before = {"before": page["next"]}
    assert seen == known
