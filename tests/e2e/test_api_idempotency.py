"""`Idempotency-Key`: one effect and one answer, however often, at once, and whoever dies meanwhile."""

import asyncio
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import httpx
import psycopg
import pytest
from e2e.conftest import Process, environment
from running_api import Api, running

from offsetzero.settings import Settings
from offsetzero.store import answers
from offsetzero.store.script import run
from support import wait_until

DATA = b"# A page\n\nof Markdown."
HOOK = {"url": "https://receiver.example/hook"}
AT_ONCE = 200


@pytest.fixture
def api(database_url: str, tmp_path: Path) -> Iterator[Api]:
    with running(Settings(home=tmp_path, database_url=database_url, api={"max_upload_bytes": 100_000})) as api:
        yield api


def _upload(client: httpx.Client, key: str, data: bytes = DATA, name: str = "a.md", **more: Any) -> httpx.Response:
    headers = {"Idempotency-Key": key}
    return client.post("/documents", files={"file": (name, data, "text/markdown")}, headers=headers, **more)


def _subscribe(client: httpx.Client, key: str, **body: Any) -> httpx.Response:
    return client.post("/webhooks", json={**HOOK, **body}, headers={"Idempotency-Key": key})


def _code(response: httpx.Response) -> tuple[int, str]:
    return response.status_code, response.json()["type"].rpartition(":")[2]


def _connect(api: Api) -> psycopg.Connection[Any]:
    return psycopg.connect(api.settings.database_url.get_secret_value(), autocommit=True)


@contextmanager
def _held_up(api: Api) -> Iterator[None]:
    """Nothing gets into the outbox meanwhile: requests stand in the middle of their transactions."""
    with _connect(api) as connection, connection.transaction():
        connection.execute("LOCK TABLE outbox IN ACCESS EXCLUSIVE MODE")
        yield


def _await_one_at_work(api: Api) -> None:
    waiting = "SELECT 1 FROM pg_stat_activity WHERE wait_event_type = 'Lock' AND query LIKE '%%INSERT INTO documents%%'"
    wait_until(lambda: api.rows(waiting), what="a request in its transaction")


def test_a_repeat_has_the_same_answer_byte_for_byte(api: Api) -> None:
    first = _upload(api.client, "key-1")
    assert first.status_code == 202
    assert "idempotent-replayed" not in first.headers
    for key in ("key-1", '"key-1"'):
        again = _upload(api.client, key)  # in parts with another boundary
        assert (again.status_code, again.content) == (202, first.content)
        assert again.headers["idempotent-replayed"] == "true"
        for name in ("location", "content-type"):
            assert again.headers[name] == first.headers[name]
    other = _upload(api.stranger, "key-1")
    assert other.status_code == 202, "a key is its tenant's"
    assert other.content != first.content
    assert api.rows("SELECT count(*) FROM runs") == [(2,)]
    hook = _subscribe(api.client, "key-2")
    assert hook.status_code == 201
    assert _subscribe(api.client, "key-2").content == hook.content
    assert len(api.client.get("/webhooks").json()["webhooks"]) == 1


def test_a_repeat_that_names_an_object_needs_it_no_more(api: Api) -> None:
    stored = api.settings.home / "objects" / "incoming" / "demo" / "a.md"
    stored.parent.mkdir(parents=True)
    stored.write_bytes(DATA)

    def post(**more: str) -> httpx.Response:
        asked = {"uri": stored.as_uri(), **more}
        return api.client.post("/documents", json=asked, headers={"Idempotency-Key": "key-1"})

    first = post()
    assert first.status_code == 202
    stored.unlink()
    again = post()
    assert (again.status_code, again.content) == (202, first.content)
    assert _code(post(name="b.md")) == (422, "idempotency-key-reused")


def test_an_answer_that_shows_a_name_goes_with_the_document(api: Api) -> None:
    made = _upload(api.client, "key-1", name="CV Jane Doe.md").json()

    def cancel() -> httpx.Response:
        return api.client.post(f"/runs/{made['run_id']}/cancel", headers={"Idempotency-Key": "key-2"})

    first = cancel()
    assert first.json()["document_name"] == "CV Jane Doe.md"
    assert cancel().content == first.content
    assert api.client.delete(f"/documents/{made['document_id']}").status_code == 204
    assert api.rows("SELECT key FROM idempotency_keys WHERE convert_from(body, 'UTF8') LIKE '%%Jane%%'") == []
    again = cancel()
    assert (again.status_code, again.json()["status"]) == (200, "cancelled")
    assert not again.json()["document_name"]
    assert _upload(api.client, "key-1", name="CV Jane Doe.md").headers["idempotent-replayed"] == "true"


def test_a_key_belongs_to_one_request(api: Api) -> None:
    _upload(api.client, "key-1")
    for again in (
        _upload(api.client, "key-1", data=DATA + b"!"),
        _upload(api.client, "key-1", name="b.md"),
        _subscribe(api.client, "key-1"),
    ):
        assert _code(again) == (422, "idempotency-key-reused")
    assert _code(_upload(api.client, "two words")) == (400, "idempotency-key-invalid")
    assert api.rows("SELECT count(*) FROM documents") == [(1,)]
    assert len(api.objects()) == 1


def test_of_200_at_once_one_starts_a_run(api: Api) -> None:
    """idempot-js#186: the loser of a race got 503."""

    async def send_all() -> list[httpx.Response]:
        limits = httpx.Limits(max_connections=AT_ONCE)
        headers = {**api.client.headers, "Idempotency-Key": "key-1"}
        async with httpx.AsyncClient(
            base_url=api.client.base_url, headers=headers, limits=limits, timeout=60
        ) as client:
            files = {"file": ("a.md", DATA, "text/markdown")}
            return await asyncio.gather(*(client.post("/documents", files=files) for _ in range(AT_ONCE)))

    responses = asyncio.run(send_all())
    assert {response.status_code for response in responses} <= {202, 409}
    taken = [response for response in responses if response.status_code == 202]
    assert len({response.content for response in taken}) == 1
    assert sum("idempotent-replayed" not in response.headers for response in taken) == 1
    assert {_code(response) for response in responses if response not in taken} <= {(409, "idempotency-key-in-use")}
    for table in ("runs", "documents", "outbox"):
        assert api.rows(f"SELECT count(*) FROM {table}") == [(1,)]
    assert len(api.objects()) == 1


def test_while_the_first_is_at_work_others_wait_outside(api: Api) -> None:
    with ThreadPoolExecutor(1) as threads:
        with _held_up(api):
            first = threads.submit(_upload, api.client, "key-1", timeout=60)
            _await_one_at_work(api)
            again = _upload(api.client, "key-1")
            assert _code(again) == (409, "idempotency-key-in-use")
            assert again.headers["retry-after"]
        taken = first.result(60)
    assert taken.status_code == 202
    assert _upload(api.client, "key-1").content == taken.content
    assert len(api.objects()) == 1


def test_who_is_killed_at_work_leaves_the_key(api: Api, tmp_path: Path) -> None:
    process = Process(["api", "--port", "0"], environment(api.settings), tmp_path / "api.log")
    try:
        url = f"http://127.0.0.1:{process.await_line('api listens')['port']}"
        with httpx.Client(base_url=url, headers=api.client.headers) as client, ThreadPoolExecutor(1) as threads:
            with _held_up(api):
                first = threads.submit(_upload, client, "key-1", timeout=60)
                _await_one_at_work(api)
                process.kill()
                assert _code(_upload(api.client, "key-1")) == (409, "idempotency-key-in-use")
            assert isinstance(first.exception(60), httpx.TransportError)
    finally:
        process.kill()
    taken = wait_until(lambda: found if (found := _upload(api.client, "key-1")).is_success else None)
    assert taken is not None
    assert taken.status_code == 202
    assert "idempotent-replayed" not in taken.headers, "what the first has done was rolled back"
    assert api.rows("SELECT count(*) FROM runs") == [(1,)]


def test_a_process_that_stands_still_loses_the_key(api: Api) -> None:
    with _connect(api) as hung, _connect(api) as other:
        hung.execute("BEGIN")
        assert run(hung, answers.hold("demo", "key-1", seconds=0.2))

        def mine() -> bool:
            with other.transaction():
                return run(other, answers.hold("demo", "key-1", seconds=60))

        wait_until(mine, what="the key is free")
        with pytest.raises(psycopg.Error, match="idle-in-transaction timeout"):
            hung.execute("INSERT INTO documents DEFAULT VALUES")  # whatever it would still do


def test_an_error_of_what_was_executed_is_answered_again(api: Api) -> None:
    for number in range(20):
        assert _subscribe(api.client, f"key-{number}").status_code == 201
    refused = _subscribe(api.client, "key")
    assert _code(refused) == (409, "too-many-webhooks")
    webhook_id = api.client.get("/webhooks").json()["webhooks"][0]["id"]
    assert api.client.delete(f"/webhooks/{webhook_id}").status_code == 204
    again = _subscribe(api.client, "key")
    assert (again.status_code, again.content) == (409, refused.content)
    assert again.headers["content-type"] == "application/problem+json"
    assert again.headers["idempotent-replayed"] == "true"

    with _connect(api) as connection:
        connection.execute("ALTER TABLE outbox ADD CONSTRAINT refused CHECK (false)")
        failed = _upload(api.client, "key-500")
        assert _code(failed) == (500, "internal-error")
        assert failed.headers["connection"] == "close"
        assert api.objects() == []
        connection.execute("ALTER TABLE outbox DROP CONSTRAINT refused")
    again = _upload(api.client, "key-500")
    assert (again.status_code, again.content) == (500, failed.content)
    assert api.nothing_happened()


def test_what_was_not_executed_leaves_the_key(api: Api) -> None:
    assert _upload(api.client, "key", data=b"").status_code == 422
    assert _upload(api.client, "key", name="a.png", data=b"x" * 200_000).status_code == 413
    folder = api.settings.home / "objects"
    folder.rmdir()
    folder.write_text("not a folder")
    assert _upload(api.client, "key").status_code == 503
    folder.unlink()
    folder.mkdir()
    taken = _upload(api.client, "key")
    assert taken.status_code == 202
    assert "idempotent-replayed" not in taken.headers

    folder.rename(away := folder.with_name("away"))
    folder.write_text("not a folder")
    force = {"params": {"force": "true"}}  # the object is put in the middle of the transaction
    assert _upload(api.client, "key-2", **force).status_code == 503
    folder.unlink()
    away.rename(folder)
    again = _upload(api.client, "key-2", **force)
    assert again.status_code == 202
    assert again.json()["run_id"] != taken.json()["run_id"]
    assert "idempotent-replayed" not in again.headers


def test_an_answer_is_kept_if_and_only_if_its_effect_is(api: Api) -> None:
    with _connect(api) as connection:
        connection.execute(
            "CREATE FUNCTION refuse() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN RAISE 'not now'; END $$;"
            "CREATE CONSTRAINT TRIGGER at_commit AFTER INSERT ON outbox DEFERRABLE INITIALLY DEFERRED "
            "FOR EACH ROW EXECUTE FUNCTION refuse()"
        )
        assert _upload(api.client, "key").status_code == 500, "it is found out by COMMIT alone"
        assert api.rows("SELECT 1 FROM idempotency_keys UNION ALL SELECT 1 FROM runs") == []
        connection.execute("DROP TRIGGER at_commit ON outbox")
    taken = _upload(api.client, "key")
    assert taken.status_code == 202
    assert "idempotent-replayed" not in taken.headers
    assert api.rows("SELECT count(*) FROM runs") == [(1,)]


def test_an_answer_is_kept_for_a_day(api: Api) -> None:
    first = _subscribe(api.client, "key")
    _subscribe(api.client, "younger")
    with _connect(api) as connection:
        connection.execute("UPDATE idempotency_keys SET at = at - interval '23 h 59 min' WHERE key = 'key'")
        assert run(connection, answers.prune()) == 0
        assert _subscribe(api.client, "key").content == first.content
        connection.execute("UPDATE idempotency_keys SET at = at - interval '2 min' WHERE key = 'key'")
        second = _subscribe(api.client, "key", event_types=["run.failed"])
        assert second.status_code == 201, "another request by now"
        assert _subscribe(api.client, "key", event_types=["run.failed"]).content == second.content
        connection.execute("UPDATE idempotency_keys SET at = at - interval '25 h' WHERE key = 'key'")
        assert run(connection, answers.prune()) == 1
        assert connection.execute("SELECT key FROM idempotency_keys").fetchall() == [("younger",)]


def test_the_api_removes_what_has_expired(database_url: str, tmp_path: Path) -> None:
    with psycopg.connect(database_url) as connection:
        for number, hours in enumerate((23, 25, 26)):
            connection.execute(
                "INSERT INTO idempotency_keys (tenant_id, key, fingerprint, status, headers, body, at) "
                "VALUES ('demo', %s, '', 200, '{}', '', now() - make_interval(hours => %s))",
                (str(number), hours),
            )
    with running(Settings(home=tmp_path, database_url=database_url)) as api:
        wait_until(lambda: api.rows("SELECT key FROM idempotency_keys") == [("0",)], what="the expired are gone")
