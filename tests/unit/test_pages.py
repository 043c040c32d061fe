"""What the pages print is true: links, commands, code and settings that are there."""

import ast
import re
import shlex
from pathlib import Path

import pytest
from typer.testing import CliRunner

from offsetzero.cli.app import app
from offsetzero.cli.settings import table
from offsetzero.store.tables import metadata

ROOT = Path(__file__).parents[2]
PAGES = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *sorted((ROOT / "docs").rglob("*.md"))]
EACH = pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
README = PAGES[0].read_text()


def _blocks(page: Path, language: str) -> list[str]:
    return re.findall(rf"^```{language}\n(.*?)^```", page.read_text(), re.DOTALL | re.MULTILINE)


def _commands(page: Path) -> list[list[str]]:
    """Each `offsetzero …` that a page shows, up to its first option or argument in capitals."""
    text = page.read_text()
    lines = [line for block in _blocks(page, "sh") for line in re.split(r"\n|\|\||&&|\||\$\(|\(", block)]
    lines += re.findall(r"`([^`\n]+)`", re.sub(r"^```.*?^```", "", text, flags=re.DOTALL | re.MULTILINE))
    found = [
        re.sub(r"^\s*(\S*/)?offsetzero ", "", line) for line in lines if re.match(r"\s*(\S*/)?offsetzero [a-z]", line)
    ]
    return [shlex.split(re.sub(r"[)\"].*|#.*", "", line).replace("…", "").replace("'", "")) for line in found]


@EACH
def test_a_link_leads_to_a_file(page: Path) -> None:
    for link in re.findall(r"\]\((?!https?://)([^)#]+)\)", page.read_text()):
        assert (page.parent / link).exists(), link
    for named in re.findall(r"(?:^|[\s(`])(docs/[\w./-]+\.md)", page.read_text()):
        assert (ROOT / named).exists(), named


@EACH
def test_a_command_is_there(page: Path) -> None:
    for words in _commands(page):
        path = []
        for word in words:
            if not re.fullmatch("[a-z]+", word) or len(path) == 2:
                break
            path.append(word)
        alternatives = [path]
        if len(words) > 1 and "|" in words[1]:
            alternatives = [[words[0], other] for other in words[1].split("|")]
        for alternative in alternatives:
            found = _help(alternative) or _help(alternative[:1])
            assert found, f"{page.name}: offsetzero {' '.join(words)}"
            for option in [word.partition("=")[0] for word in words if word.startswith("--")]:
                assert option in found, f"{page.name}: offsetzero {' '.join(words)} has no {option}"


def _help(path: list[str]) -> str:
    ended = CliRunner().invoke(app, [*path, "--help"], env={"COLUMNS": "200", "TERM": "dumb"})
    return ended.output if ended.exit_code == 0 else ""


@EACH
def test_python_on_a_page_is_python(page: Path) -> None:
    for block in _blocks(page, "python"):
        ast.parse(block)


@EACH
def test_a_setting_on_a_page_exists(page: Path) -> None:
    known = set(re.findall(r"OFFSETZERO_[A-Z_]+", table()))
    for name in re.findall(r"OFFSETZERO_[A-Z_]*[A-Z]", page.read_text()):
        assert name in known or any(other.startswith(f"{name}__") for other in known), name  # or a group of them


def test_each_page_is_found_from_the_readme() -> None:
    linked = {(ROOT / link).resolve() for link in re.findall(r"\]\((?!https?://)([^)#]+)\)", README)}
    for page in PAGES[1:]:
        assert page in linked or page.parent in linked, page


def test_the_subscriber_of_the_readme_is_the_example() -> None:
    (printed,) = _blocks(PAGES[0], "python")
    assert f"\n\n{printed}" in (ROOT / "examples" / "audit.py").read_text()


def test_the_tables_that_a_migration_makes_are_named() -> None:
    page = (ROOT / "docs" / "services.md").read_text()
    assert [name for name in metadata.tables if f"`{name}`" not in page] == []
