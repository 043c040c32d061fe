"""What a replay says before it begins."""

import pytest

from offsetzero.cli import replay_view
from offsetzero.consumers.replaying.looking import Seen


@pytest.mark.parametrize(
    ("is_whole", "said"),
    [(True, "All of it is done already"), (False, "All that was looked at is done already")],
)
def test_of_records_that_were_not_looked_at_nothing_is_said(
    capsys: pytest.CaptureFixture[str], *, is_whole: bool, said: str
) -> None:
    replay_view.estimate(Seen(10, read=2, meant=2, done=2, is_whole=is_whole), None, None, "audit")
    assert capsys.readouterr().err.startswith(said)
