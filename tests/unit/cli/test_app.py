"""The map of the command line."""

import itertools
import socket
import subprocess
import sys
from pathlib import Path

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


@pytest.mark.parametrize("arguments", [[], ["demo"], ["up"], ["groups", "run"], ["topics", "apply"]])
def test_help_breaks_lines_only_where_the_terminal_ends(arguments: list[str]) -> None:
    shown = CliRunner().invoke(cli.app, [*arguments, "--help"], env={"COLUMNS": "80", "TERMINAL_WIDTH": "80"}).output
    text = shown.partition("Usage:")[2].partition("╭")[0]
    lines = [line.strip() for line in text.splitlines()]
    for line, following in itertools.pairwise(lines[1:]):
        if line and following:
            assert len(line) + 1 + len(following.split()[0]) > 76, (line, following)


def test_the_help_of_the_demo_says_what_is_left_and_how_long_it_takes() -> None:
    shown = " ".join(CliRunner().invoke(cli.app, ["demo", "--help"]).output.split())
    assert "nothing is left" not in shown
    assert "it stays until you remove it" in shown
    assert "about a minute" not in shown + " ".join(CliRunner().invoke(cli.app, ["--help"]).output.split())


@pytest.mark.parametrize("arguments", ["api", "up", "relay", "groups run indexer"])
def test_a_taken_port_is_told_in_one_way(arguments: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    with socket.socket() as other:
        other.bind(("127.0.0.1", 0))
        other.listen()
        port = other.getsockname()[1]
        for name in ("METRICS_PORT", "API__PORT"):
            monkeypatch.setenv(f"OFFSETZERO_{name}", str(port))
        monkeypatch.setenv("OFFSETZERO_HOME", str(tmp_path / "home"))
        monkeypatch.setenv("OFFSETZERO_DATABASE_URL", "postgresql://nobody@127.0.0.1:1/none")
        monkeypatch.setenv("OFFSETZERO_KAFKA__BOOTSTRAP_SERVERS", "127.0.0.1:1")
        command = [sys.executable, "-m", "offsetzero", *arguments.split()]
        ended = subprocess.run(command, capture_output=True, text=True, check=False, timeout=60)
    assert ended.returncode == 1
    assert (
        f"port {port} on 127.0.0.1 is taken by another process (Address already in use); choose another" in ended.stderr
    )
    assert not (tmp_path / "home").exists()


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


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["indexer.g2", "--generation", "3"], "indexer.g2 is generation 2, and --generation says 3"),
        (["nobody.g2"], "group 'nobody': not one of"),  # it was 'nobody.g2' that was looked for
        (["ledger.g2"], "group ledger: it is no projection"),
    ],
)
def test_a_generation_is_run_by_the_name_that_other_commands_have_for_it(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], arguments: list[str], said: str
) -> None:
    monkeypatch.setenv("OFFSETZERO_DATABASE_URL", "postgresql://nobody@127.0.0.1:1/none")
    monkeypatch.setenv("OFFSETZERO_KAFKA__BOOTSTRAP_SERVERS", "127.0.0.1:1")
    monkeypatch.setattr(sys, "argv", ["offsetzero", "groups", "run", *arguments])
    with pytest.raises(SystemExit):
        cli.main()
    assert said in " ".join(capsys.readouterr().err.split())
