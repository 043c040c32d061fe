"""Log lines in the form that was asked for."""

import json
import logging
import subprocess
import sys

import pytest

from offsetzero import logs


def test_json_is_one_object_a_line(capsys: pytest.CaptureFixture[str]) -> None:
    for form in ("json", "auto"):  # standard error is no terminal here
        logs.configure(process="test", form=form)  # type: ignore[arg-type]
        logging.getLogger("x").warning("something %s", "happened")
        line = json.loads(capsys.readouterr().err)
        assert (line["event"], line["process"]) == ("something happened", "test")


def test_text_is_text_also_without_a_terminal(capsys: pytest.CaptureFixture[str]) -> None:
    logs.configure(process="test", form="text")
    logging.getLogger("x").warning("something happened")
    said = capsys.readouterr().err
    assert "something happened" in said
    assert not said.startswith("{")


def test_a_program_that_sets_up_no_logs_gets_them_from_the_standard_library_without_local_variables() -> None:
    done = subprocess.run([sys.executable, "-c", _SERVICE], capture_output=True, text=True, check=True)
    assert done.stdout == ""
    first, *rest = done.stderr.splitlines()
    assert first == "it failed group='audit' count=3"
    assert rest[-1] == "ValueError: 100% wrong"
    assert "hunter2" not in done.stderr


def test_a_program_with_a_structlog_of_its_own_keeps_it() -> None:
    mine = "import structlog\nstructlog.configure(processors=[structlog.processors.JSONRenderer()])\n"
    done = subprocess.run([sys.executable, "-c", mine + _SERVICE], capture_output=True, text=True, check=True)
    lines = [json.loads(line) for line in done.stdout.splitlines()]
    assert [line["event"] for line in lines] == ["not told", "it failed"]
    assert done.stderr == ""


_SERVICE = """
from offsetzero import logs

def fail():
    password = "hunter2"
    raise ValueError("100% wrong")

log = logs.get("offsetzero.test")
log.info("not told")
try:
    fail()
except ValueError:
    log.warning("it failed", group="audit", count=3, exc_info=True)
"""
