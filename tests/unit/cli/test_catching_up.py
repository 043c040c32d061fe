"""How a group catches up: records, how many a second, how long it will take."""

import io

from hypothesis import given
from hypothesis import strategies as st
from rich.console import Console

from offsetzero.cli import catching_up
from offsetzero.cli.catching_up import Pace
from support import wait_until

STANDS = st.lists(st.tuples(st.integers(0, 10), st.integers(0, 100), st.integers(0, 100)), min_size=1, max_size=5)


def test_rate_and_time_follow_from_what_was_done_since_it_was_first_looked_at() -> None:
    pace = Pace()
    first = pace.look(100.0, [("documents", 0, 500, 1_500), ("documents", 1, 0, 0)])
    assert (first.done, first.total, first.rate, first.seconds) == (0, 1_000, None, None)
    then = pace.look(102.0, [("documents", 0, 700, 1_600), ("documents", 1, 0, 0)])
    assert (then.done, then.total, then.rate, then.seconds) == (200, 1_100, 100.0, 9.0)


def test_other_partitions_begin_anew() -> None:
    pace = Pace()
    pace.look(100.0, [("documents", 0, 500, 1_500)])
    moved = pace.look(101.0, [("documents", 1, 900, 1_000)])
    assert (moved.done, moved.total, moved.rate) == (0, 100, None)


@given(st.lists(STANDS, min_size=1, max_size=10))
def test_it_is_never_negative_whatever_moves(looks: list[list[tuple[int, int, int]]]) -> None:
    pace = Pace()
    for number, stands in enumerate(looks):
        partitions = {partition: ("documents", partition, done, end) for partition, done, end in stands}
        sight = pace.look(float(number), list(partitions.values()))
        assert sight.done >= 0
        assert sight.left == sum(max(0, end - done) for _, _, done, end in partitions.values())
        assert sight.rate is None or sight.rate >= 0


class Member:
    name = "audit"
    at = 0

    def stands(self) -> list[tuple[str, int, int, int]]:
        self.at = min(1_000, self.at + 500)
        return [("documents", 0, self.at, 1_000)]


def test_a_terminal_has_a_bar_until_nothing_is_left() -> None:
    screen = io.StringIO()
    member = Member()
    with catching_up.shown(member, "audit", Console(file=screen, force_terminal=True, width=120)):  # type: ignore[arg-type]
        wait_until(lambda: member.at == 1_000 and "500/500" in screen.getvalue(), 60, what="the end of the bar")
    assert "audit catches up" in screen.getvalue()
    assert "/s" in screen.getvalue()
