"""`offsetzero dlq groups`, `show`, `edit`, `export`: what operators see of dead letters, and what they make of one."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from uuid import uuid4

import psycopg
import pytest
from commands import CommandsHere
from kafka import letters
from kafka.letters import Letter

from offsetzero.cli import dlq_desk, dlq_view
from offsetzero.clock import SYSTEM
from offsetzero.producers.log import LogProducer
from offsetzero.retry import headers as retry_headers
from offsetzero.retry.failures import Bug, Poison
from offsetzero.retry.headers import Hop, Origin
from offsetzero.schemas.codec import Codec
from offsetzero.schemas.documents import DocumentUploaded
from offsetzero.settings import Settings
from offsetzero.store import dead_letter_pages
from offsetzero.topics.names import Names


@pytest.fixture
def offsetzero(settings: Settings, monkeypatch: pytest.MonkeyPatch) -> CommandsHere:
    return CommandsHere(settings, monkeypatch)


@pytest.fixture
def database(settings: Settings) -> Iterator[psycopg.Connection]:
    with psycopg.connect(settings.database_url.get_secret_value(), autocommit=True) as connection:
        yield connection


def test_dead_letters_of_one_cause_are_one_line(settings: Settings, offsetzero: CommandsHere) -> None:
    bug = [
        Letter(offset, failure=Bug("KeyError", "no such key"), failed_at_ms=1_000 * offset) for offset in range(1, 4)
    ]
    letters.write(settings, "audit", [*bug, Letter(9)])
    found = json.loads(offsetzero("dlq", "groups", "audit", "--json").stdout)
    assert [(row["failure"], row["reason"], row["count"]) for row in found] == [
        ("bug", "KeyError", 3),
        ("poison", "corrupt", 1),
    ]
    assert (found[0]["first_seen"], found[0]["last_seen"]) == ("1970-01-01T00:00:01+00:00", "1970-01-01T00:00:03+00:00")
    (line,) = (line for line in offsetzero("dlq", "groups").stdout.splitlines() if " bug " in line)
    assert found[0]["fingerprint"] in line
    offsetzero("dlq", "discard", "audit", "--fingerprint", found[0]["fingerprint"], "--why", "mended elsewhere")
    assert [row["reason"] for row in json.loads(offsetzero("dlq", "groups", "--json").stdout)] == ["corrupt"]


def test_an_edit_is_what_a_redrive_sends_and_the_original_is_kept(
    settings: Settings, offsetzero: CommandsHere, database: psycopg.Connection
) -> None:
    document_id, event_id = uuid4(), uuid4()
    letters.write(settings, "audit", [Letter(0, document_id=document_id, event_id=event_id, name="wrong.pdf")])
    edited = offsetzero(
        "dlq", "edit", "audit", "0/0", "--set", "name=right.pdf", "--set", "size_bytes=7", "--why", "typo"
    )
    assert edited.stdout.startswith("Stored")
    offsetzero("dlq", "edit", "audit", "0/0", "--set", "size_bytes=8", "--why", "typo in the typo")
    shown = json.loads(offsetzero("dlq", "show", "audit", "0/0", "--json").stdout)
    assert (shown["payload"]["name"], shown["payload_edited"]["name"]) == ("wrong.pdf", "right.pdf")
    (first, _) = json.loads(offsetzero("dlq", "audit", "audit", "--json").stdout)
    assert (first["action"], first["letters"], first["done"]) == ("edit", 1, 1)
    assert "holds_key" not in offsetzero("dlq", "show", "audit", "0/0").stdout
    offsetzero("dlq", "redrive", "audit", "0/0", "--why", "mended")
    (sent,) = letters.redriven(settings, "audit")
    event = Codec().decode("document.uploaded", sent["value"])
    assert isinstance(event, DocumentUploaded)
    assert (event.document_id, event.name, event.size_bytes) == (document_id, "right.pdf", 8)
    assert sent["ce_id"] == str(event_id)
    originals = database.execute("SELECT original FROM dead_letter_edits").fetchall()
    assert [Codec().decode_fields(original)["name"] for (original,) in originals] == ["wrong.pdf", "wrong.pdf"]
    assert [row["action"] for row in json.loads(offsetzero("dlq", "audit", "--json").stdout)] == [
        "edit",
        "edit",
        "redrive",
    ]
    assert (
        "is redriven already"
        in offsetzero("dlq", "edit", "audit", "0/0", "--set", "name=x", "--why", "x", status=1).stderr
    )


def test_an_edit_that_breaks_the_schema_is_refused(
    settings: Settings, offsetzero: CommandsHere, database: psycopg.Connection, tmp_path: Path
) -> None:
    letters.write(settings, "audit", [Letter(0)])
    whole = tmp_path / "payload.json"
    for arguments, said in (
        (["--set", "size_bytes=many"], "size_bytes: Input should be a valid integer"),
        (["--set", "uploaded_at=2026-01-31T12:00:00"], "time zone"),
        (["--set", "colour=red"], "of a field that the payload has: document_id, tenant_id, run_id, name, "),
        (["--set", "name"], "give FIELD=VALUE"),
        (["--set", f"document_id={uuid4()}"], "an event's key cannot be changed"),
        (["--file", str(whole)], "is no JSON"),
        (["--file", str(tmp_path / "none.json")], "none.json: No such file or directory; nothing was stored"),
        (["--file", str(tmp_path)], "Is a directory; nothing was stored"),
        ([], "name an editor in EDITOR"),
    ):
        whole.write_text("{")
        assert said in offsetzero("dlq", "edit", "audit", "0/0", *arguments, "--why", "x", status=1).stderr, arguments
    assert "--why" in offsetzero("dlq", "edit", "audit", "0/0", "--set", "name=x", status=1).stderr
    assert database.execute("SELECT count(*) FROM dead_letter_actions").fetchone() == (0,)


def test_what_has_no_attributes_cannot_be_edited_and_what_to_do_is_told(
    settings: Settings, offsetzero: CommandsHere, tmp_path: Path
) -> None:
    letters.write(settings, "audit", [])
    hop = Hop(Origin(letters.SOURCE_ID, "documents", 0, 7), timestamp_ms=1)
    with LogProducer(settings) as producer:
        headers = retry_headers.write([], hop, Poison("unreadable"), "audit")
        topic = Names(settings.kafka.namespace).topic("audit.dlq")
        producer.produce(topic, key=b"k", value=b"\xff", headers=headers, partition=0, timestamp_ms=SYSTEM.now_ms())
    whole = tmp_path / "whole.json"
    whole.write_text("{}")
    told = offsetzero("dlq", "edit", "audit", "0/0", "--file", str(whole), "--why", "x", status=1).stderr
    assert "publish the event again from its source, then discard this one" in told
    assert "--module" not in told


def test_an_editor_is_given_the_payload(
    settings: Settings, offsetzero: CommandsHere, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    letters.write(settings, "audit", [Letter(0, name="wrong.pdf")])
    script = tmp_path / "an editor"
    script.write_text('#!/bin/sh\nsed -i "s/wrong/right/" "$1"\n')
    script.chmod(0o755)
    monkeypatch.setenv("EDITOR", "true")
    assert offsetzero("dlq", "edit", "audit", "0/0", "--why", "x").stdout == "Nothing was changed.\n"
    monkeypatch.setenv("EDITOR", f"'{script}'")
    offsetzero("dlq", "edit", "audit", "0/0", "--why", "x")
    shown = json.loads(offsetzero("dlq", "show", "audit", "0/0", "--json").stdout)
    assert shown["payload_edited"]["name"] == "right.pdf"
    for editor, said in (
        ("false", "ended with status 1"),
        ("no-such-editor --wait", "the editor no-such-editor --wait: "),
        ("vi 'x", "No closing quotation"),
    ):
        monkeypatch.setenv("EDITOR", editor)
        assert said in offsetzero("dlq", "edit", "audit", "0/0", "--why", "x", status=1).stderr


def test_an_export_has_all_of_what_was_chosen(settings: Settings, offsetzero: CommandsHere, tmp_path: Path) -> None:
    letters.write(
        settings, "audit", [Letter(offset, partition=offset % 2, name=f"{offset}.pdf") for offset in range(700)]
    )
    out = tmp_path / "letters.jsonl"
    offsetzero("dlq", "export", "audit", "--out", str(out))
    lines = [json.loads(line) for line in out.read_text().splitlines()]
    assert sorted(line["payload"]["name"] for line in lines) == sorted(f"{offset}.pdf" for offset in range(700))
    assert bytes.fromhex(lines[0]["payload_hex"])[:2] == b"\xc3\x01"
    assert {line["payload_edited"] for line in lines} == {None}
    offsetzero("dlq", "edit", "audit", "1/0", "--set", "name=right.pdf", "--why", "a slip")
    (line,) = offsetzero("dlq", "export", "audit", "1/0").stdout.splitlines()
    assert json.loads(line)["place"] == "1/0"
    assert json.loads(line)["payload_edited"]["name"] == "right.pdf"
    had = out.read_bytes()
    assert "no dead letter 7/7" in offsetzero("dlq", "export", "audit", "7/7", "--out", str(out), status=1).stderr
    for path in (tmp_path / "nowhere" / "letters.jsonl", tmp_path):
        assert f"Error: {path}: " in offsetzero("dlq", "export", "audit", "--out", str(path), status=1).stderr
    assert out.read_bytes() == had
    assert [path.name for path in tmp_path.iterdir()] == ["letters.jsonl"]
    assert list(tmp_path.parent.glob(".*.part")) == []
    assert (
        offsetzero("dlq", "export", "audit", "1/0", "--out", "/dev/null").stderr == "1 dead letter of audit written\n"
    )


def test_a_list_as_json_is_written_page_by_page(
    settings: Settings, offsetzero: CommandsHere, monkeypatch: pytest.MonkeyPatch
) -> None:
    """However many there are: none waits in memory for the last."""
    assert json.loads(offsetzero("dlq", "list", "--json").stdout) == []
    letters.write(settings, "audit", [Letter(offset) for offset in range(7)], partitions=1)
    monkeypatch.setattr(dlq_desk, "PAGE", 3)
    written, pages, original = list[int](), list[int](), dead_letter_pages.pages

    def spy(*arguments: Any) -> Iterator[Any]:
        for page in original(*arguments):
            pages.append(len(page))
            yield page

    def summary(one: Any) -> dict[str, Any]:
        written.append(len(pages))
        return shown(one)

    shown = dlq_view.summary
    monkeypatch.setattr(dead_letter_pages, "pages", spy)
    monkeypatch.setattr(dlq_view, "summary", summary)
    out = offsetzero("dlq", "list", "audit", "--json").stdout
    found = json.loads(out)
    assert [one["place"] for one in found] == [f"0/{number}" for number in range(7)]
    assert out == json.dumps(found, indent=2) + "\n"
    assert (pages, written) == ([3, 3, 1], [1, 1, 1, 2, 2, 2, 3])


def test_without_a_database_the_topics_are_read(
    settings: Settings, offsetzero: CommandsHere, monkeypatch: pytest.MonkeyPatch
) -> None:
    letters.write(settings, "audit", [Letter(0), Letter(1)])
    monkeypatch.delenv("OFFSETZERO_DATABASE_URL")
    assert [row["place"] for row in json.loads(offsetzero("dlq", "list", "--json").stdout)] == ["0/0", "0/1"]
    assert json.loads(offsetzero("dlq", "show", "audit", "0/1", "--json").stdout)["payload"]["name"] == "a.pdf"
    assert "OFFSETZERO_DATABASE_URL: not set" in offsetzero("dlq", "groups", status=1).stderr
    for filtered in (["--tenant", "acme"], ["--text", "a.pdf"], ["--status", "resolved"]):
        assert "filters need the ledger" in offsetzero("dlq", "list", *filtered, status=1).stderr


def test_a_database_of_an_older_version_is_told(
    settings: Settings, offsetzero: CommandsHere, database: psycopg.Connection
) -> None:
    letters.write(settings, "audit", [Letter(0)])
    database.execute("DROP TABLE dead_letters")
    assert "run `offsetzero migrate`" in offsetzero("dlq", "list", status=1).stderr
