"""`offsetzero settings`, as it is piped into grep."""

import pytest
from typer.testing import CliRunner

from offsetzero.cli import app as cli


def test_a_setting_is_one_line_that_a_shell_takes(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OFFSETZERO_API__PORT", "9000")
    monkeypatch.setenv("COLUMNS", "40")
    lines = CliRunner().invoke(cli.app, ["settings"]).output.splitlines()
    assert all(line.startswith("OFFSETZERO_") for line in lines)
    (port,) = (line for line in lines if "API__PORT" in line)
    assert port == "OFFSETZERO_API__PORT=9000  # Port to bind; 0 takes a free one and logs it. (default: 8080)"
    assert not any("`" in line for line in lines)
    assert any(line.startswith("""OFFSETZERO_RETRY__DELAYS='{"retry-1m": 60.0,""") for line in lines)


def test_passwords_among_the_options_of_the_client_are_not_shown(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OFFSETZERO_KAFKA__OPTIONS", '{"sasl.password": "hunter2", "sasl.username": "me"}')
    for form in ((), ("--json",), ("--markdown",)):
        shown = CliRunner().invoke(cli.app, ["settings", *form]).output
        assert "hunter2" not in shown
    assert (
        """'{"sasl.password": "********", "sasl.username": "me"}'""" in CliRunner().invoke(cli.app, ["settings"]).output
    )
