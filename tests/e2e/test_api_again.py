"""The same bytes again: another run after one that ended badly, and never two at once."""

import asyncio
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from uuid import UUID

import httpx
import psycopg
import pytest
from running_api import Api, running

from offsetzero import metrics
from offsetzero.schemas.codec import Codec
from offsetzero.schemas.documents import DocumentUploaded
from offsetzero.settings import Settings
from offsetzero.store import run_steps
from offsetzero.store.script import run
from support import wait_until

DATA = b"# A page\n\nof Markdown."
AT_ONCE = 200


@pytest.fixture
def api(database_url: str, tmp_path: Path) -> Iterator[Api]:
    with running(Settings(home=tmp_path, database_url=database_url)) as api:
        yield api


def _upload(api: Api, name: str = "a.pdf", kind: str = "application/pdf") -> httpx.Response:
    return api.client.post("/documents", files={"file": (name, DATA, kind)})


def _end(api: Api, run_id: str, *, badly: bool) -> None:
    with psycopg.connect(api.settings.database_url.get_secret_value()) as connection:
        for step in ("indexer", "summariser"):
            if badly:
                run(connection, run_steps.fail_step(UUID(run_id), step, reason="not-a-pdf", detail="It is none."))
            else:
                run(connection, run_steps.succeed_step(UUID(run_id), step))


def _failed(api: Api) -> dict[str, str]:
    answer: dict[str, str] = _upload(api).json()
    _end(api, answer["run_id"], badly=True)
    return answer


def test_after_a_failed_run_the_file_has_a_new_one_as_it_is_declared_now(api: Api) -> None:
    first = _failed(api)
    again = _upload(api, "a.md", "text/markdown")
    assert again.status_code == 202
    second = again.json()
    assert (second["document_id"], second["status"]) == (first["document_id"], "queued")
    assert second["run_id"] != first["run_id"]
    assert again.headers["location"] == f"/runs/{second['run_id']}"
    shown = api.client.get(f"/documents/{first['document_id']}").json()
    assert (shown["name"], shown["content_type"]) == ("a.md", "text/markdown")
    (stored,) = api.objects()
    assert stored.read_bytes() == DATA

    told = api.rows("SELECT payload, headers FROM outbox WHERE type = 'document.uploaded' ORDER BY id")
    assert [headers["ce_sequence"] for _, headers in told] == ["1", "2"]
    event = Codec().decode("document.uploaded", told[1][0])
    assert isinstance(event, DocumentUploaded)
    assert (event.content_type, str(event.run_id), event.uri) == ("text/markdown", second["run_id"], stored.as_uri())
    listed = api.client.get("/runs", params={"document_id": first["document_id"]}).json()["runs"]
    assert [item["status"] for item in listed] == ["queued", "failed"]


def test_a_cancelled_run_is_followed_by_a_new_one_too(api: Api) -> None:
    first = _upload(api).json()
    with psycopg.connect(api.settings.database_url.get_secret_value()) as connection:
        connection.execute("UPDATE runs SET status = 'cancelled'")
    again = _upload(api)
    assert (again.status_code, again.json()["run_id"] != first["run_id"]) == (202, True)


def test_a_run_that_goes_on_or_went_well_is_the_answer(api: Api) -> None:
    first = _failed(api)
    second = _upload(api).json()
    going_on = _upload(api, "other.md", "text/markdown")
    assert (going_on.status_code, going_on.json()) == (200, second)
    _end(api, second["run_id"], badly=False)
    ended = _upload(api)
    assert (ended.status_code, ended.json()) == (200, {**second, "status": "succeeded"})
    assert len({first["run_id"], second["run_id"]}) == 2
    assert api.rows("SELECT count(*) FROM runs") == [(2,)]


def test_who_forces_it_has_another_run_once_a_key(api: Api) -> None:
    first = _upload(api).json()
    _end(api, first["run_id"], badly=False)
    sent = {"files": {"file": ("b.md", DATA, "text/markdown")}, "params": {"force": "true"}}
    refused = api.client.post("/documents", **sent)
    assert (refused.status_code, refused.json()["type"]) == (400, "urn:offsetzero:problem:idempotency-key-needed")
    forced = [api.client.post("/documents", **sent, headers={"Idempotency-Key": key}) for key in ("1", "1", "2")]
    assert [answer.status_code for answer in forced] == [202] * 3
    assert forced[0].content == forced[1].content
    assert len({first["run_id"], *(answer.json()["run_id"] for answer in forced)}) == 3
    assert {answer.json()["document_id"] for answer in forced} == {first["document_id"]}
    told = api.rows("SELECT headers ->> 'ce_sequence' FROM outbox WHERE type = 'document.uploaded' ORDER BY id")
    assert told == [("1",), ("2",), ("3",)]
    assert len(api.objects()) == 1


def test_the_newest_run_is_that_of_the_database_clock(api: Api) -> None:
    """Ids come from the clocks of several API processes; one that is behind must not hide its run."""
    _failed(api)
    second = _upload(api).json()
    with psycopg.connect(api.settings.database_url.get_secret_value()) as connection:
        connection.execute("UPDATE run_steps SET required = false")
        connection.execute("DELETE FROM run_steps WHERE run_id = %s", (second["run_id"],))
        connection.execute("DELETE FROM run_events")
        connection.execute("UPDATE runs SET id = '00000000-0000-7000-8000-000000000001' WHERE status = 'queued'")
    again = _upload(api)
    assert (again.status_code, again.json()["run_id"]) == (200, "00000000-0000-7000-8000-000000000001")


async def _upload_all(api: Api) -> list[httpx.Response]:
    limits = httpx.Limits(max_connections=AT_ONCE)
    client = httpx.AsyncClient(base_url=api.client.base_url, headers=api.client.headers, limits=limits, timeout=60)
    async with client:
        files = {"file": ("a.md", DATA, "text/markdown")}
        return await asyncio.gather(*(client.post("/documents", files=files) for _ in range(AT_ONCE)))


@pytest.mark.parametrize("before", ["nothing", "a failed run"])
def test_many_at_once_have_one_run(api: Api, before: str) -> None:
    if before == "a failed run":
        _failed(api)

    answers = asyncio.run(_upload_all(api))
    assert sorted(answer.status_code for answer in answers) == [200] * (AT_ONCE - 1) + [202]
    assert len({answer.json()["run_id"] for answer in answers}) == 1
    assert len(api.objects()) == 1
    expected = 2 if before == "a failed run" else 1
    assert api.rows("SELECT count(*) FROM outbox WHERE type = 'document.uploaded'") == [(expected,)]


def test_an_object_that_was_lost_is_there_again(api: Api) -> None:
    _failed(api)
    (stored,) = api.objects()
    stored.unlink()
    assert _upload(api).status_code == 202
    assert stored.read_bytes() == DATA


def test_when_the_transaction_fails_the_object_that_was_there_stays(api: Api) -> None:
    _failed(api)
    with psycopg.connect(api.settings.database_url.get_secret_value()) as connection:
        connection.execute("ALTER TABLE outbox ADD CONSTRAINT refused CHECK (type <> 'document.uploaded') NOT VALID")
    assert _upload(api, "a.md", "text/markdown").status_code == 500
    assert len(api.objects()) == 1
    assert api.rows("SELECT content_type, version FROM documents") == [("application/pdf", 1)]


def test_a_deletion_at_the_same_time_wins_and_leaves_no_object(api: Api) -> None:
    _failed(api)
    url = api.settings.database_url.get_secret_value()
    with ThreadPoolExecutor(1) as thread, psycopg.connect(url) as connection:
        connection.execute("UPDATE documents SET deleted_at = now(), version = version + 1")
        for stored in api.objects():  # as a deletion does, before its commit
            stored.unlink()
        upload = thread.submit(_upload, api)
        wait_until(
            lambda: api.rows(
                "SELECT 1 FROM pg_stat_activity WHERE wait_event_type = 'Lock' AND datname = current_database()"
            ),
            what="the upload waits for the row",
        )
        connection.commit()
        answer = upload.result(60)
    assert (answer.status_code, answer.json()["type"]) == (409, "urn:offsetzero:problem:conflict")
    assert api.objects() == []


def test_many_that_have_all_seen_the_failed_run_wait_for_one(api: Api) -> None:
    """However slow that is: half of the connections, and those that wait for these, would not do for them all."""
    _failed(api)
    waiting = "SELECT FROM pg_stat_activity WHERE datname = current_database() AND wait_event_type = 'Lock'"
    at_work = metrics.HTTP_AT_WORK.labels("upload")._value
    with ThreadPoolExecutor(1) as pool, psycopg.connect(api.settings.database_url.get_secret_value()) as connection:
        connection.execute("SELECT FROM documents FOR UPDATE")
        uploads = pool.submit(lambda: asyncio.run(_upload_all(api)))
        wait_until(lambda: api.rows(waiting), what="one upload waits for the document")
        wait_until(lambda: at_work.get() == AT_ONCE or uploads.done(), what="all uploads are at work")
        assert len(api.rows(waiting)) == 1
        connection.rollback()
        answers = uploads.result()
    assert sorted(answer.status_code for answer in answers) == [200] * (AT_ONCE - 1) + [202]
    assert len({answer.json()["run_id"] for answer in answers}) == 1
    assert api.rows("SELECT count(*) FROM runs") == [(2,)]


def test_who_waited_for_one_that_fails_tries_for_itself(api: Api) -> None:
    _failed(api)
    folder = api.settings.home / "objects"
    folder.rename(folder.with_name("aside"))
    folder.write_text("no folder")
    assert {answer.status_code for answer in asyncio.run(_upload_all(api))} == {503}
    folder.unlink()
    folder.with_name("aside").rename(folder)
    assert _upload(api).status_code == 202
    assert _upload(api).status_code == 200
