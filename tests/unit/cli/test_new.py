"""`offsetzero new group`: one file and its test, which passes as it is."""

import os
import subprocess
import sys
from pathlib import Path

import pytest
from typer.testing import CliRunner, Result

from offsetzero.cli.app import app
from offsetzero.errors import ConfigurationError

OWN = """
from typing import Literal
from uuid import UUID
from offsetzero import Event

class PumpStarted(Event, type="pump.started", key="pump_id"):
    pump_id: UUID
    mode: Literal["fast", "slow"]
"""


def new(*arguments: str) -> Result:
    return CliRunner().invoke(app, ["new", "group", *arguments])


def passes(folder: Path) -> str:
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "-c", os.devnull, "--rootdir", str(folder)],
        cwd=folder,
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def test_the_written_test_passes_as_it_is(tmp_path: Path) -> None:
    every = ["document.uploaded", "document.deleted", "run.succeeded", "run.failed", "run.cancelled"]
    made = new("audit", "--folder", str(tmp_path), *[part for one in every for part in ("--on", one)])
    assert made.exit_code == 0, made.output
    assert "offsetzero groups run audit:audit" in made.output
    assert "5 passed" in passes(tmp_path)
    for path in tmp_path.glob("*.py"):
        assert max(map(len, path.read_text().splitlines())) <= 120, path


def test_events_of_ones_own_are_found_in_their_module(tmp_path: Path) -> None:
    (tmp_path / "pumps.py").write_text(OWN)
    subprocess.run(
        [sys.executable, "-m", "offsetzero", "new", "group", "shift", "--on", "pump.started", "--module", "pumps"],
        cwd=tmp_path,
        check=True,
        timeout=120,
    )
    assert "from pumps import PumpStarted" in (tmp_path / "shift.py").read_text()
    assert "1 passed" in passes(tmp_path)


def test_a_group_of_one_event_is_about_twenty_lines(tmp_path: Path) -> None:
    new("audit", "--on", "document.uploaded", "--folder", str(tmp_path))
    assert len((tmp_path / "audit.py").read_text().splitlines()) < 25


def test_nothing_is_overwritten_and_all_that_is_wrong_is_told(tmp_path: Path) -> None:
    (tmp_path / "test_audit.py").write_text("mine")
    refused = new("audit", "--on", "document.uploadd", "--folder", str(tmp_path)).exception
    assert isinstance(refused, ConfigurationError)
    overwritten = next(one for one in refused.problems if "test_audit.py" in one)
    assert "was not touched" in overwritten
    unknown = next(one for one in refused.problems if one.startswith("--on"))
    assert "near it: document.uploaded" in unknown
    assert (tmp_path / "test_audit.py").read_text() == "mine"
    assert not (tmp_path / "audit.py").exists()


@pytest.mark.parametrize("name", ["Audit", "my-audit", "class", "json", "../audit"])
def test_a_name_that_is_no_module_is_refused(tmp_path: Path, name: str) -> None:
    refused = new(name, "--on", "document.uploaded", "--folder", str(tmp_path)).exception
    assert isinstance(refused, ConfigurationError)
    assert "Python module" in str(refused)
    assert not list(tmp_path.iterdir())
