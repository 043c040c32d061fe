"""What `offsetzero demo` leaves behind, and what it sweeps."""

import tempfile
from pathlib import Path

import pytest

from offsetzero.cli import demo as module


@pytest.fixture
def temporary(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    monkeypatch.setattr(module, "end_on_signals", lambda: None)
    return tmp_path


def demo_that(ends: object, monkeypatch: pytest.MonkeyPatch, *, keep: bool = False) -> None:
    """A demo whose servers get as far as their lock and logs, and which then ends so."""

    def run(home: Path, *_others: object) -> bool:
        (home / "logs").mkdir()
        (home / "up.lock").touch()
        if isinstance(ends, BaseException):
            raise ends
        return bool(ends)

    monkeypatch.setattr(module, "_run", run)
    with pytest.raises((SystemExit, RuntimeError)):
        module.demo(keep=keep)


@pytest.mark.parametrize("ends", [KeyboardInterrupt(), RuntimeError("broken"), False])
def test_a_folder_that_was_announced_outlives_the_next_demo(
    ends: object, temporary: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    demo_that(ends, monkeypatch)
    (announced,) = temporary.iterdir()
    assert str(announced) in capsys.readouterr().out
    demo_that(True, monkeypatch)
    assert list(temporary.iterdir()) == [announced]


def test_what_is_kept_on_demand_outlives_the_next_demo(temporary: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    demo_that(True, monkeypatch, keep=True)
    (kept,) = temporary.iterdir()
    demo_that(True, monkeypatch)
    assert list(temporary.iterdir()) == [kept]


def test_the_folder_of_a_demo_that_was_killed_is_swept(temporary: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    killed = temporary / "offsetzero-demo-killed"
    killed.mkdir()
    (killed / "up.lock").touch()
    demo_that(True, monkeypatch)
    assert not list(temporary.iterdir())
