"""`offsetzero dlq groups`, `show`, `edit`, `export`: what operators see of dead letters, and what they make of one."""

import json
from collections.abc import Iterator
from pathlib import Path
from uuid import uuid4

import psycopg
import pytest
from commands import CommandsHere
from kafka import letters
from kafka.letters import Letter

from offsetzero.retry.failures import Bug
from offsetzero.schemas.codec import Codec
from offsetzero.schemas.documents import DocumentUploaded
from offsetzero.settings import Settings


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
        (["--set", "colour=red"], "of a field that the payload has"),
        (["--set", "name"], "give FIELD=VALUE"),
        (["--set", f"document_id={uuid4()}"], "an event's key cannot be changed"),
        (["--file", str(whole)], "is no JSON"),
        ([], "name an editor in EDITOR"),
    ):
        whole.write_text("{")
        assert said in offsetzero("dlq", "edit", "audit", "0/0", *arguments, "--why", "x", status=1).stderr, arguments
    assert "--why" in offsetzero("dlq", "edit", "audit", "0/0", "--set", "name=x", status=1).stderr
    assert database.execute("SELECT count(*) FROM dead_letter_actions").fetchone() == (0,)


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
    monkeypatch.setenv("EDITOR", "false")
    assert "ended with status 1" in offsetzero("dlq", "edit", "audit", "0/0", "--why", "x", status=1).stderr


def test_an_export_has_all_of_what_was_chosen(settings: Settings, offsetzero: CommandsHere, tmp_path: Path) -> None:
    letters.write(
        settings, "audit", [Letter(offset, partition=offset % 2, name=f"{offset}.pdf") for offset in range(700)]
    )
    out = tmp_path / "letters.jsonl"
    offsetzero("dlq", "export", "audit", "--out", str(out))
    lines = [json.loads(line) for line in out.read_text().splitlines()]
    assert sorted(line["payload"]["name"] for line in lines) == sorted(f"{offset}.pdf" for offset in range(700))
    assert bytes.fromhex(lines[0]["payload_hex"])[:2] == b"\xc3\x01"
    (line,) = offsetzero("dlq", "export", "audit", "1/0").stdout.splitlines()
    assert json.loads(line)["place"] == "1/0"


def test_without_a_database_the_topics_are_read(
    settings: Settings, offsetzero: CommandsHere, monkeypatch: pytest.MonkeyPatch
) -> None:
    letters.write(settings, "audit", [Letter(0), Letter(1)])
    monkeypatch.delenv("OFFSETZERO_DATABASE_URL")
    assert [row["place"] for row in json.loads(offsetzero("dlq", "list", "--json").stdout)] == ["0/0", "0/1"]
    assert json.loads(offsetzero("dlq", "show", "audit", "0/1", "--json").stdout)["payload"]["name"] == "a.pdf"
    assert "OFFSETZERO_DATABASE_URL: not set" in offsetzero("dlq", "groups", status=1).stderr


def test_a_database_of_an_older_version_is_told(
    settings: Settings, offsetzero: CommandsHere, database: psycopg.Connection
) -> None:
    letters.write(settings, "audit", [Letter(0)])
    database.execute("DROP TABLE dead_letters")
    assert "run `offsetzero migrate`" in offsetzero("dlq", "list", status=1).stderr
