"""docs/dead-letters.md does what it says: its commands are run as they are printed there, and print what is there."""

import re
import shlex
from pathlib import Path
from uuid import UUID

import pytest
from commands import CommandsHere
from kafka import letters
from kafka.letters import Letter

from offsetzero.retry.failures import Bug, Poison, Transient
from offsetzero.settings import Settings

PAGE = (Path(__file__).parents[2] / "docs" / "dead-letters.md").read_text()
_CHANGING = (
    (re.compile(r"\b01[0-9a-f]{6}-[0-9a-f]{4}-7[0-9a-f-]{21}\b"), "<an action's id>"),
    (re.compile(r"\b20(2[6-9]|[3-9]\d)-\d\d-\d\dT\d\d:\d\d:\d\d(\.\d+)?(\+00:00|Z)"), "<now>"),
    (re.compile(r"\burn:offsetzero:schema:[0-9a-f]{16}\b"), "<a schema>"),
)


def six_dead_letters(settings: Settings) -> None:
    """What the page is about; ids and times are always the same."""
    bug = Bug("KeyError", "an unexpected error; operators see it in the log", internal="KeyError: '/Root'")
    corrupt = Poison("corrupt", "the document cannot be read: no PDF header")
    busy = Transient("provider-503", "the provider answered 503")
    day = 1_740_787_200_000  # 2025-03-01T00:00:00Z
    made = [
        Letter(17, 0, failure=corrupt, attempt=1, name="zeros.pdf"),
        Letter(21, 0, failure=bug, attempt=2, name="march.pdf"),
        Letter(40, 0, failure=bug, attempt=2, name="april.pdf", tenant="umbra"),
        Letter(3, 1, failure=corrupt, attempt=1, name="notes.pdf"),
        Letter(9, 1, failure=bug, attempt=2, name="may.pdf"),
        Letter(11, 1, failure=busy, attempt=3, name="june.pdf", tenant="umbra"),
    ]
    numbered = [
        Letter(
            one.offset,
            one.partition,
            document_id=UUID(int=0xD0C << 100 | number),
            run_id=UUID(int=0x5AB << 100 | number),
            event_id=UUID(int=0xE7E << 100 | number),
            name=one.name,
            tenant=one.tenant,
            failure=one.failure,
            attempt=one.attempt,
            failed_at_ms=day + number * 61_000,
        )
        for number, one in enumerate(made)
    ]
    letters.write(settings, "indexer", numbered)


def blocks(page: str) -> list[tuple[str, str]]:
    """Each command of the page, and what it prints there."""
    shown = "".join(re.findall(r"^```console\n(.*?)^```", page, re.DOTALL | re.MULTILINE))
    return [(command, output) for command, output in re.findall(r"^\$ (.*)\n((?:(?!\$ ).*\n)*)", shown, re.MULTILINE)]


def lasting(text: str) -> str:
    """A text without what is another each time."""
    for pattern, name in _CHANGING:
        text = pattern.sub(name, text)
    return text


def test_the_commands_of_the_page_print_what_it_shows(
    settings: Settings, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    six_dead_letters(settings)
    monkeypatch.chdir(tmp_path)
    offsetzero = CommandsHere(settings, monkeypatch)
    assert len(blocks(PAGE)) >= 10
    for command, printed in blocks(PAGE):
        program, *arguments = shlex.split(command)
        assert program == "offsetzero"
        done = offsetzero(*arguments)
        assert lasting(done.stdout + done.stderr) == lasting(printed), command
