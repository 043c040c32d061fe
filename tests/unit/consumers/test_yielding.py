"""Backfill gives way to a machine that has more to do than it can, and comes back."""

from offsetzero.consumers.reading.yielding import (
    CALM_ROUNDS,
    LATE_SECONDS,
    LIVE_SECONDS,
    PACES,
    ROUND_SECONDS,
    ROUND_WAITS,
    Yielding,
)


class Waits:
    """As many waits a second as make a round, of which some end late."""

    def __init__(self, most: int) -> None:
        self.now = 100.0
        self.yielding = Yielding(most, self.now)

    def round(self, late: int) -> int:
        for number in range(ROUND_WAITS):
            self.now += ROUND_SECONDS / ROUND_WAITS + 1e-9
            self.yielding.waited(2 * LATE_SECONDS if number < late else 0.0, self.now)
        return self.yielding.at_once

    def begun(self, seconds: float) -> int | None:
        """How many records of backfill begin in so many seconds; None for any number."""
        begun, end = 0, self.now + seconds
        while self.now < end:
            if (pause := self.yielding.pause(self.now)) is None:
                return None
            begun += pause == 0.0
            self.now += max(pause, 0.001)
        return begun


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
    for number in range(10 * ROUND_WAITS):
        yielding.waited(-1.0, number * ROUND_SECONDS)
    assert yielding.at_once == 2


def test_a_member_that_seldom_waits_does_not_give_way_for_one_late_wait() -> None:
    """Three waits a second, for the rest there are records: one of a hundred that is late is nothing."""
    yielding = Yielding(3, 0.0)

    def waited(every: int, numbers: range) -> set[int]:
        found = set()
        for one in numbers:
            yielding.waited(2 * LATE_SECONDS if one % every == 0 else 0.0, one / 3)
            found.add(yielding.at_once)
        return found

    assert waited(100, range(1, 1_000)) == {3}
    assert waited(3, range(1_000, 1_100)) == {3, 2, 1}, "a third of all is much"


def test_one_at_a_time_is_too_much_beside_live_traffic_and_nothing_else() -> None:
    waits = Waits(2)
    waits.yielding.met(waits.now + 1_000)
    waits.round(late=20)
    assert (waits.yielding.at_once, waits.begun(1.0)) == (1, None), "first fewer at once, then pauses"
    for pace in (*PACES, PACES[-1]):
        waits.round(late=20)
        begun = waits.begun(10 * pace)
        assert begun is not None
        assert abs(begun - 10) <= 1
    alone = Waits(2)
    for _ in range(9):
        alone.round(late=20)
    assert alone.begun(1.0) is None


def test_pauses_end_some_time_after_live_traffic() -> None:
    waits = Waits(1)
    waits.round(late=20)
    waits.yielding.met(waits.now)
    assert waits.begun(0.9 * LIVE_SECONDS)
    assert waits.begun(0.2 * LIVE_SECONDS) is None


def test_pauses_end_before_there_are_more_at_once() -> None:
    waits = Waits(2)
    for _ in range(3):
        waits.round(late=20)
    paces = []
    for _ in range(3):
        for _ in range(CALM_ROUNDS):
            waits.round(late=0)
        waits.yielding.met(waits.now)
        paces.append((waits.begun(1.0) is not None, waits.yielding.at_once))
    assert paces == [(True, 1), (False, 1), (False, 2)]
