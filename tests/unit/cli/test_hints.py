"""The commands that `up` proposes: quoted for a shell, by the name that works."""

import sys
from pathlib import Path

import pytest

from offsetzero.cli import hints
from offsetzero.settings import default_home


def proposed(home: Path) -> list[str]:
    return [line for _, lines in hints.commands("http://127.0.0.1:1", "ozk_x", home) for line in lines]


def test_a_program_that_is_not_on_the_path_is_called_by_its_own(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", "/nowhere")
    path = str(Path(sys.executable).with_name("offsetzero"))
    assert hints.program() == path
    monkeypatch.setenv("PATH", str(Path(path).parent))
    assert hints.program() == "offsetzero"


def test_another_offsetzero_on_the_path_is_not_taken_for_this_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    other = tmp_path / "offsetzero"
    other.touch(mode=0o755)
    monkeypatch.setenv("PATH", str(tmp_path))
    assert hints.program() == str(Path(sys.executable).with_name("offsetzero"))


def test_a_folder_is_named_when_it_is_not_the_usual_one_and_quoted() -> None:
    assert "OFFSETZERO_HOME='/a folder' " in proposed(Path("/a folder"))[0]
    assert "OFFSETZERO_HOME" not in proposed(default_home().absolute())[0]


def test_an_installed_package_without_examples_uploads_a_text(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(hints, "_EXAMPLE", Path("/nowhere/handbook.pdf"))
    upload = next(line for line in proposed(Path("/x")) if "/documents" in line)
    assert upload.startswith("echo ")
    assert "nowhere" not in upload
