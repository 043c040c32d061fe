"""What an interrupted side job of a replay says is to be done: another command after --force, or all is done twice."""

from types import SimpleNamespace
from typing import Any

import pytest
import typer

from offsetzero import logs
from offsetzero.cli import replay_ways, side_jobs
from offsetzero.consumers import registry
from offsetzero.consumers.replaying.looking import Wanted
from offsetzero.generation import Generation
from offsetzero.settings import Settings


@pytest.mark.parametrize("forced", [False, True])
def test_the_same_command_is_advised_only_where_it_does_the_rest(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], *, forced: bool
) -> None:
    job = SimpleNamespace(outcomes={"applied": 1}, meant=3, is_complete=False)
    monkeypatch.setattr(logs, "configure", lambda **_: None)  # it is the process's
    monkeypatch.setattr(side_jobs, "run", lambda *_: (job, []))
    ended: list[str] = []
    given: Any = (Settings(), registry.load("notifier"), Generation("notifier"), [], Wanted(), ended)
    with pytest.raises(typer.Exit) as exit_:
        replay_ways.run_job(*given, forced=forced)
    assert exit_.value.exit_code == replay_ways.EXIT_UNFINISHED
    assert ended == ["interrupted: 1 applied"]
    assert ("the same command does the rest" in capsys.readouterr().err) is not forced
