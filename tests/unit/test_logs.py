"""Log lines in the form that was asked for."""

import json
import logging
from collections.abc import Iterator

import pytest
import structlog

from offsetzero import logs


@pytest.fixture(autouse=True)
def _as_before() -> Iterator[None]:
    root = logging.getLogger()
    handlers, level = list(root.handlers), root.level
    yield
    root.handlers[:] = handlers
    root.setLevel(level)
    structlog.reset_defaults()


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
