"""The map of the command line."""

import subprocess
import sys

import pytest
from typer.testing import CliRunner

from offsetzero.cli import app as cli

_COMMANDS = ("demo", "up", "api", "relay", "migrate", "keys", "publish", "topics", "schema", "groups", "dlq")


def test_the_map_names_every_command_without_importing_one() -> None:
    code = (
        "import sys; from offsetzero.cli import app\n"
        "try: app.app(['--help'])\n"
        "except SystemExit: pass\n"
        "loaded = {name for name in sys.modules if name.startswith('offsetzero.')}\n"
        "others = loaded - {'offsetzero.cli', 'offsetzero.cli.app', 'offsetzero.errors'}\n"
        "sys.exit(repr(sorted(others)) if others else 0)"
    )
    result = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert result.returncode == 0, result.stderr
    assert all(f" {name} " in result.stdout for name in _COMMANDS)


@pytest.mark.parametrize("name", _COMMANDS)
def test_every_command_of_the_map_loads_and_explains_itself(name: str) -> None:
    result = CliRunner().invoke(cli.app, [name, "--help"])
    assert result.exit_code == 0, result.output
    assert "Usage:" in result.output


def test_a_mistyped_command_is_a_usage_error_with_a_proposal() -> None:
    result = CliRunner().invoke(cli.app, ["topicz"])
    assert result.exit_code == 2
    assert "Did you mean 'topics'?" in result.output


def test_settings_that_are_missing_or_unknown_are_told_together(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("OFFSETZERO_NONSENSE", "1")
    monkeypatch.setenv("OFFSETZERO_API__PORT", "70000")
    monkeypatch.setattr(sys, "argv", ["offsetzero", "relay"])
    with pytest.raises(SystemExit) as ended:
        cli.main()
    assert ended.value.code == 1
    said = capsys.readouterr().err
    assert "OFFSETZERO_NONSENSE: no such setting" in said
    assert "OFFSETZERO_API__PORT" in said


def test_a_database_that_is_away_is_one_sentence(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("OFFSETZERO_DATABASE_URL", "postgresql://nobody@127.0.0.1:1/none")
    monkeypatch.setattr(sys, "argv", ["offsetzero", "migrate"])
    with pytest.raises(SystemExit) as ended:
        cli.main()
    assert ended.value.code == 1
    said = capsys.readouterr().err
    assert "the database cannot be reached" in said
    assert "Traceback" not in said
