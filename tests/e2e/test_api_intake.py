"""Uploads over HTTP into the real database: what is taken in, and that bad input leaves nothing behind."""

import hashlib
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from uuid import UUID

import httpx
import pdfs
import psycopg
import pytest
from running_api import Api, running, serving

from offsetzero.schemas.codec import Codec
from offsetzero.schemas.documents import DocumentDeleted, DocumentUploaded
from offsetzero.settings import Settings

PDF = pdfs.pdf("A short document.")
DOCX = "application/vnd.openxmlformats-officedocument.wordprocessingml.document"
LIMIT = 200_000


@pytest.fixture
def api(database_url: str, tmp_path: Path) -> Iterator[Api]:
    """An API with its database and no Kafka: it needs none."""
    with running(Settings(home=tmp_path, database_url=database_url, api={"max_upload_bytes": LIMIT})) as api:
        yield api


def _upload(
    client: httpx.Client, data: bytes = PDF, name: str = "a.pdf", kind: str = "application/pdf"
) -> httpx.Response:
    return client.post("/documents", files={"file": (name, data, kind)})


def test_an_upload_is_an_object_a_run_and_an_event(api: Api) -> None:
    response = _upload(api.client, name="Größe – 1.pdf")
    assert response.status_code == 202
    answer = response.json()
    assert answer["status"] == "queued"
    assert response.headers["location"] == f"/runs/{answer['run_id']}"
    (stored,) = api.objects()
    assert stored.read_bytes() == PDF
    ((payload, key, topic, headers),) = api.rows("SELECT payload, aggregateid, topic, headers FROM outbox")
    event = Codec().decode("document.uploaded", payload)
    assert isinstance(event, DocumentUploaded)
    assert event.uri == stored.as_uri()
    assert (event.name, event.content_type, event.size_bytes) == ("", "application/pdf", len(PDF))
    assert api.rows("SELECT name FROM documents") == [("Größe – 1.pdf",)]
    assert event.sha256 == hashlib.sha256(PDF).hexdigest()
    assert (str(event.document_id), str(event.run_id)) == (answer["document_id"], answer["run_id"])
    assert (key, topic, headers["ce_tenantid"], headers["ce_runid"]) == (
        answer["document_id"],
        "documents",
        "demo",
        answer["run_id"],
    )
    assert headers["ce_sequence"] == "1"
    assert api.rows("SELECT step, status, required FROM run_steps ORDER BY step") == [
        ("indexer", "queued", True),
        ("summariser", "queued", True),
    ]


def _problem(response: httpx.Response, status: int, code: str) -> bool:
    body = response.json()
    assert response.headers["content-type"] == "application/problem+json"
    assert (response.status_code, body["type"]) == (status, f"urn:offsetzero:problem:{code}")
    assert body["status"] == status
    assert body["title"]
    assert body["detail"]
    return True


def test_an_empty_file_is_refused(api: Api) -> None:
    assert _problem(_upload(api.client, b""), 422, "empty-file")
    assert api.nothing_happened()


@pytest.mark.parametrize(
    ("name", "kind"), [("a.docx", "application/msword"), ("a.png", "image/png"), ("a.bin", "application/octet-stream")]
)
def test_an_unsupported_type_is_refused(api: Api, name: str, kind: str) -> None:
    response = _upload(api.client, PDF, name, kind)
    assert _problem(response, 415, "unsupported-type")
    for known in (name, kind, ".pdf", ".docx", ".html", ".md", ".txt"):
        assert known in response.json()["detail"]
    assert api.nothing_happened()


@pytest.mark.parametrize(
    ("name", "kind", "taken"),
    [
        ("A.PDF", "application/octet-stream", "application/pdf"),
        ("a.docx", "application/octet-stream", DOCX),
        ("a.docx", "application/zip", DOCX),
        ("a", DOCX, DOCX),
        ("a.htm", "", "text/html"),
        ("a", "application/xhtml+xml; charset=utf-8", "text/html"),
        ("README.md", "", "text/markdown"),
        ("a.txt", "text/plain; charset=utf-8", "text/plain"),
        ("a.txt", "", "text/plain"),
    ],
)
def test_the_name_tells_the_type_that_the_client_does_not_know(api: Api, name: str, kind: str, taken: str) -> None:
    header = f"Content-Type: {kind}\r\n" if kind else ""
    body = f'--b\r\nContent-Disposition: form-data; name="file"; filename="{name}"\r\n{header}\r\nhello\r\n--b--\r\n'
    headers = {"Content-Type": "multipart/form-data; boundary=b"}
    assert api.client.post("/documents", content=body, headers=headers).status_code == 202
    assert api.rows("SELECT content_type FROM documents") == [(taken,)]


@pytest.mark.parametrize("more", [1, 70_000, 5_000_000])
def test_a_file_over_the_limit_is_refused_while_reading(api: Api, more: int) -> None:
    assert _problem(_upload(api.client, PDF[:9] + bytes(LIMIT - 9 + more)), 413, "too-large")
    assert api.nothing_happened()


def test_a_body_of_unknown_length_is_stopped_at_the_limit(api: Api) -> None:
    def body() -> Iterator[bytes]:
        yield b'--b\r\nContent-Disposition: form-data; name="file"; filename="a.pdf"\r\n\r\n'
        for _ in range(500):
            yield bytes(65_536)

    headers = {"Content-Type": "multipart/form-data; boundary=b"}
    assert _problem(api.client.post("/documents", content=body(), headers=headers), 413, "too-large")
    assert api.nothing_happened()


def test_other_fields_cannot_be_larger_than_the_limit_either(api: Api) -> None:
    def body() -> Iterator[bytes]:
        yield b'--b\r\nContent-Disposition: form-data; name="other"\r\n\r\n'
        for _ in range(50):
            yield bytes(65_536)
        yield b"\r\n--b--\r\n"

    headers = {"Content-Type": "multipart/form-data; boundary=b"}
    assert _problem(api.client.post("/documents", content=body(), headers=headers), 413, "too-large")


def test_a_file_of_exactly_the_limit_is_taken(api: Api) -> None:
    assert _upload(api.client, PDF[:9] + bytes(LIMIT - 9)).status_code == 202


def test_without_a_key_nothing_is_taken(api: Api) -> None:
    response = _upload(api.anonymous)
    assert _problem(response, 401, "key-needed")
    assert response.headers["www-authenticate"].startswith("Bearer")
    for value in ("Bearer ozk_wrong", "Bearer", "Basic YTpi"):
        assert api.anonymous.post("/documents", headers={"Authorization": value}).status_code == 401
    assert api.nothing_happened()


@pytest.mark.parametrize(
    ("body", "kind", "status", "code"),
    [
        (b"%PDF-", "application/pdf", 415, "not-multipart"),
        (b"x", "multipart/form-data", 415, "not-multipart"),
        (b"no boundary here", "multipart/form-data; boundary=b", 400, "malformed-body"),
        (
            b'--b\r\nContent-Disposition: form-data; name="file"\r\n\r\ncut',
            "multipart/form-data; boundary=b",
            415,
            None,
        ),
        (
            b'--b\r\nContent-Disposition: form-data; name="file"; filename="a.pdf"\r\n\r\ncut',
            "multipart/form-data; boundary=b",
            400,
            "malformed-body",
        ),
        (
            b'--b\r\nContent-Disposition: form-data; name="other"\r\n\r\nx\r\n--b--\r\n',
            "multipart/form-data; boundary=b",
            422,
            "no-file",
        ),
        (
            b'--b\r\nContent-Disposition: form-data; name="file"; filename="a.pdf"\r\n\r\nx\r\n' * 2 + b"--b--\r\n",
            "multipart/form-data; boundary=b",
            422,
            "several-files",
        ),
        (b"", "multipart/form-data; boundary=" + "b" * 500, 400, "malformed-body"),
    ],
)
def test_a_malformed_request_is_refused(api: Api, body: bytes, kind: str, status: int, code: str | None) -> None:
    response = api.client.post("/documents", content=body, headers={"Content-Type": kind})
    assert _problem(response, status, code or "unsupported-type")
    assert api.nothing_happened()


def test_a_name_is_only_a_name(api: Api) -> None:
    name = b"..\\..\\etc/pass\xff\twd\x00.pdf"
    body = b'--b\r\nContent-Disposition: form-data; name="file"; filename="' + name + b'"\r\n\r\nx\r\n--b--\r\n'
    headers = {"Content-Type": "multipart/form-data; boundary=b"}
    assert api.client.post("/documents", content=body, headers=headers).status_code == 202
    assert api.rows("SELECT name FROM documents") == [("pass\ufffd wd.pdf",)]


def test_the_same_file_again_is_the_same_document(api: Api) -> None:
    first = _upload(api.client).json()
    again = _upload(api.client, name="another name.pdf")
    assert again.status_code == 200
    assert again.json() == first
    assert len(api.objects()) == 1
    assert api.rows("SELECT count(*) FROM outbox") == [(1,)]
    assert _upload(api.stranger).status_code == 202, "of another tenant it is another document"


def test_the_same_file_at_the_same_time_is_taken_in_once(api: Api) -> None:
    with ThreadPoolExecutor(8) as threads:
        responses = list(threads.map(lambda _: _upload(api.client), range(24)))
    assert sorted({response.status_code for response in responses}) == [200, 202]
    assert [response.status_code for response in responses].count(202) == 1
    assert len({response.json()["run_id"] for response in responses}) == 1
    assert len(api.objects()) == 1, "the losers removed their objects"
    assert api.rows("SELECT count(*) FROM outbox") == [(1,)]


def test_a_document_comes_by_its_uri_too(api: Api) -> None:
    folder = api.settings.home / "objects" / "incoming"
    for name, content in (
        ("demo/a b.pdf", PDF),
        ("other/secret.pdf", PDF),
        ("demo/large.pdf", bytes(LIMIT + 1)),
        ("demo/0.txt", b""),
    ):
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_bytes(content)

    def post(name: str, **more: str) -> httpx.Response:
        return api.client.post("/documents", json={"uri": (folder / name).as_uri().replace("%20", " "), **more})

    assert _problem(post("other/secret.pdf"), 422, "object-missing")
    assert _problem(post("demo/../other/secret.pdf"), 422, "object-missing")
    assert _problem(post("demo/none.pdf"), 422, "object-missing")
    long = api.client.post("/documents", json={"uri": "x" * 70_000})
    assert _problem(long, 413, "too-large")
    assert long.json()["detail"] == "the body is larger than 65536 bytes", "not the file"
    odd = {"uri": f"{folder.as_uri()}/demo/a\x01.pdf"}
    assert _problem(api.client.post("/documents", json=odd), 422, "object-missing"), "no key may have that character"
    assert _problem(post("demo/large.pdf"), 413, "too-large")
    assert _problem(post("demo/0.txt"), 422, "empty-file")
    assert _problem(post("demo/a b.pdf", content_type="image/png"), 415, "unsupported-type")
    assert api.rows("SELECT 1 FROM documents") == []
    taken = post("demo/a b.pdf")
    assert taken.status_code == 202
    assert api.rows("SELECT name, content_type, size_bytes, sha256 FROM documents") == [
        ("a b.pdf", "application/pdf", len(PDF), hashlib.sha256(PDF).hexdigest())
    ]
    (folder / "demo/a b.pdf").unlink()
    (event,) = (Codec().decode("document.uploaded", payload) for (payload,) in api.rows("SELECT payload FROM outbox"))
    assert isinstance(event, DocumentUploaded)
    assert [path.read_bytes() for path in api.objects() if path.as_uri() == event.uri] == [PDF], "a copy of its own"
    assert _upload(api.client).json()["run_id"] == taken.json()["run_id"], "the same bytes are the same document"


def test_when_the_transaction_fails_the_object_is_removed(api: Api) -> None:
    with psycopg.connect(api.settings.database_url.get_secret_value()) as connection:
        connection.execute("ALTER TABLE outbox ADD CONSTRAINT refused CHECK (false)")
    assert _problem(_upload(api.client), 500, "internal-error")
    assert api.nothing_happened()


def test_when_the_object_store_is_away_nothing_is_published(api: Api) -> None:
    folder = api.settings.home / "objects"
    folder.rmdir()
    folder.write_text("not a folder")
    assert _problem(_upload(api.client), 503, "object-store-unavailable")
    folder.unlink()
    assert api.nothing_happened()


def test_a_deleted_document_is_gone_at_once_and_announced(api: Api) -> None:
    document_id = _upload(api.client).json()["document_id"]
    assert _problem(api.stranger.delete(f"/documents/{document_id}"), 404, "not-found")
    assert api.client.delete(f"/documents/{document_id}").status_code == 204
    assert _problem(api.client.get(f"/documents/{document_id}"), 404, "not-found")
    assert _problem(api.client.delete(f"/documents/{document_id}"), 404, "not-found")
    assert api.objects() == []
    ((payload, headers),) = api.rows("SELECT payload, headers FROM outbox WHERE type = 'document.deleted'")
    event = Codec().decode("document.deleted", payload)
    assert isinstance(event, DocumentDeleted)
    assert (event.document_id, headers["ce_sequence"]) == (UUID(document_id), "2")
    assert _upload(api.client).status_code == 202, "the same file may come again, as a new document"


def test_while_the_object_store_is_away_nothing_is_deleted(api: Api) -> None:
    document_id = _upload(api.client, name="kept.pdf").json()["document_id"]
    folder = api.settings.home / "objects"
    folder.rename(away := folder.with_name("away"))
    folder.write_text("not a folder")
    assert _problem(response := api.client.delete(f"/documents/{document_id}"), 503, "object-store-unavailable")
    assert response.headers["retry-after"]
    assert api.client.get(f"/documents/{document_id}").json()["name"] == "kept.pdf"
    assert api.rows("SELECT 1 FROM outbox WHERE type = 'document.deleted'") == []
    folder.unlink()
    away.rename(folder)
    assert api.client.delete(f"/documents/{document_id}").status_code == 204
    assert api.objects() == []
    assert api.rows("SELECT name, deleted_at IS NULL FROM documents") == [("", False)]


def test_without_its_database_it_is_alive_and_not_ready(tmp_path: Path) -> None:
    settings = Settings(home=tmp_path, database_url="postgresql://nobody@127.0.0.1:1/none")
    with serving(settings) as url, httpx.Client(base_url=url, timeout=20) as client:
        assert client.get("/healthz").json() == {"status": "ok"}
        assert _problem(client.get("/readyz"), 503, "not-ready")
        assert client.get("/metrics").status_code == 200
        response = client.get("/runs", headers={"Authorization": "Bearer ozk_any"})
        assert _problem(response, 503, "database-unavailable")
        assert response.headers["retry-after"]
