"""Backfill gives way to a machine that has more to do than it can, and comes back."""

from offsetzero.consumers.reading.yielding import CALM_ROUNDS, LATE_SECONDS, ROUND_SECONDS, ROUND_WAITS, Yielding


class Waits:
    """As many waits a second as make a round, of which some end late."""

    def __init__(self, most: int) -> None:
        self.now = 100.0
        self.yielding = Yielding(most, self.now)

    def round(self, late: int) -> int:
        for number in range(ROUND_WAITS):
            self.now += ROUND_SECONDS / ROUND_WAITS + 1e-9
            at_once = self.yielding.waited(2 * LATE_SECONDS if number < late else 0.0, self.now)
        return at_once


def test_it_gives_way_one_by_one_but_never_all_of_it() -> None:
    waits = Waits(4)
    assert [waits.round(late=10) for _ in range(6)] == [3, 2, 1, 1, 1, 1]


def test_it_comes_back_slowly_once_hardly_anything_is_late() -> None:
    waits = Waits(3)
    assert [waits.round(late=20) for _ in range(2)] == [2, 1]
    assert [waits.round(late=1) for _ in range(2 * CALM_ROUNDS + 3)] == [1] * 4 + [2] * 5 + [3] * 4


def test_a_machine_that_is_late_at_times_has_neither_more_nor_less() -> None:
    waits = Waits(3)
    assert waits.round(late=20) == 2
    assert [waits.round(late=late) for late in (0, 0, 0, 0, 2, 0, 0, 0, 0)] == [2] * 9


def test_waits_that_end_early_are_not_late() -> None:
    yielding = Yielding(2, 0.0)
    assert [yielding.waited(-1.0, float(second)) for second in range(1, 4)] == [2, 2, 2]


def test_a_member_that_seldom_waits_does_not_give_way_for_one_late_wait() -> None:
    """Three waits a second, for the rest there are records: one of a hundred that is late is nothing."""
    yielding = Yielding(3, 0.0)

    def waited(every: int, numbers: range) -> set[int]:
        return {yielding.waited(2 * LATE_SECONDS if one % every == 0 else 0.0, one / 3) for one in numbers}

    assert waited(100, range(1, 1_000)) == {3}
    assert waited(3, range(1_000, 1_100)) == {3, 2, 1}, "a third of all is much"
