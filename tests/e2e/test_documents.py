"""Documents of every kind through the whole pipeline, as its users see it."""

from typing import Any

import office
import pdfs
from e2e.conftest import Pipeline

from offsetzero.consumers.groups.documents.formats import DOCX, HTML, MARKDOWN
from offsetzero.retry import dead_letters
from support import wait_until

PDF = "application/pdf"


def _steps(run: dict[str, Any], member: str) -> dict[str, Any]:
    return {step["step"]: step[member] for step in run["steps"]}


def _search(pipeline: Pipeline, query: str) -> list[dict[str, Any]]:
    hits: list[dict[str, Any]] = pipeline.client.get("/search", params={"q": query}).json()["hits"]
    return hits


def _start(pipeline: Pipeline) -> None:
    pipeline.start_intake()
    pipeline.start("groups", "run", "indexer")
    pipeline.start("groups", "run", "summariser")


def test_each_kind_of_document_has_its_own_end(pipeline: Pipeline) -> None:
    _start(pipeline)
    kinds = {
        "text.pdf": pdfs.pdf("A page about compilers and other machines that we like."),
        "arabic.pdf": pdfs.right_to_left("مرحبا", after="hello"),
        "scan.pdf": pdfs.without_text(),
        "locked.pdf": pdfs.encrypted("secret", "Hidden."),
        "none.pdf": pdfs.pdf(),
        "wrong.pdf": b"this is a text",
        "broken.pdf": pdfs.corrupt(),
    }
    started = {name: pipeline.upload(name, data, PDF)["run_id"] for name, data in kinds.items()}
    others = {
        "word.docx": (office.docx("Our offices are closed.", cell="Opening hours"), DOCX.content_type),
        "locked.docx": (office.compound("EncryptedPackage"), DOCX.content_type),
        "page.html": ("<title>Häuser</title><p>Die Verträge der Städte".encode("iso-8859-1"), HTML.content_type),
        "notes.md": (
            b"# Notes\n\nWe **re**wrote the parsers because they were slow and hard to read.",
            MARKDOWN.content_type,
        ),
        "bomb.docx": (office.zip_of(word__document_xml=b"<a>" + bytes(900 * 1024**2) + b"</a>"), DOCX.content_type),
    }
    started |= {name: pipeline.upload(name, *given)["run_id"] for name, given in others.items()}
    started["western.txt"] = pipeline.upload("western.txt", "Grüße aus Köln".encode("windows-1252"))["run_id"]
    runs = {name: pipeline.await_run(run_id) for name, run_id in started.items()}
    assert {name: run["status"] for name, run in runs.items()} == {
        "text.pdf": "succeeded",
        "arabic.pdf": "succeeded",
        "scan.pdf": "succeeded",
        "western.txt": "succeeded",
        "word.docx": "succeeded",
        "page.html": "succeeded",
        "notes.md": "succeeded",
        "locked.docx": "failed",
        "bomb.docx": "failed",
        "locked.pdf": "failed",
        "none.pdf": "failed",
        "wrong.pdf": "failed",
        "broken.pdf": "failed",
    }
    for name, reason in [
        ("locked.pdf", "password-needed"),
        ("locked.docx", "password-needed"),
        ("bomb.docx", "too-much-memory"),
        ("none.pdf", "no-pages"),
        ("wrong.pdf", "not-a-pdf"),
        ("broken.pdf", "corrupt"),
    ]:
        assert _steps(runs[name], "reason") == {"indexer": reason, "summariser": reason}
        assert _steps(runs[name], "attempts") == {"indexer": 1, "summariser": 1}
    assert all("no text" in warning for warning in _steps(runs["scan.pdf"], "warning").values())
    for query, name in [
        ("compiler machine", "text.pdf"),
        ("مرحبا", "arabic.pdf"),
        ("köln", "western.txt"),
        ("hour office", "word.docx"),
        ("Vertrag Haus", "page.html"),
        ("rewrote parser", "notes.md"),
    ]:
        assert [hit["name"] for hit in _search(pipeline, query)] == [name]
    for group in ("indexer", "summariser"):
        letters = list(dead_letters.read(pipeline.settings, group))
        reasons = sorted(letter.reason for letter in letters)
        assert reasons == ["corrupt", "too-much-memory"], "permanent failures are no dead letters"


def test_a_deleted_document_leaves_search_and_summaries(pipeline: Pipeline) -> None:
    _start(pipeline)
    upload = pipeline.upload("secret.txt", b"The secret ingredient is a pinch of salt, as always.")
    pipeline.await_run(upload["run_id"])
    path = f"/documents/{upload['document_id']}"
    assert _search(pipeline, "ingredient")
    assert "salt" in pipeline.client.get(path).json()["summary"]
    assert pipeline.client.delete(path).status_code == 204
    wait_until(lambda: not _search(pipeline, "ingredient"), what="the document has left the index")
    assert pipeline.client.get(path).status_code == 404
    again = pipeline.upload("secret.txt", b"The secret ingredient is a pinch of salt, as always.")
    assert again["document_id"] != upload["document_id"]
    assert pipeline.await_run(again["run_id"])["status"] == "succeeded"
    assert [hit["document_id"] for hit in _search(pipeline, "ingredient")] == [again["document_id"]]
