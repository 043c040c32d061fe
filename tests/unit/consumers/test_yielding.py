"""Backfill begins slowly, gives way to a machine that has more to do than it can, and comes back."""

from offsetzero.consumers.reading.yielding import (
    BEGIN,
    CALM_ROUNDS,
    LATE_SECONDS,
    LIVE_SECONDS,
    PACES,
    ROUND_SECONDS,
    ROUND_WAITS,
    Yielding,
)

TO_ONE = sum(pace <= BEGIN for pace in PACES)
"""Calm rounds until one at a time goes without pauses."""


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

    def pace(self) -> float | None:
        """Seconds between two records of backfill beside live traffic; None for any number."""
        self.yielding.met(self.now, bulk=False)
        begun, now = [], self.now
        while now < self.now + 0.9 * LIVE_SECONDS:
            if (pause := self.yielding.pause(now)) is None:
                return None
            begun += [now] if pause == 0.0 else []
            now += max(pause, 1e-6)
        self.now += LIVE_SECONDS
        return round((begun[-1] - begun[0]) / (len(begun) - 1), 4)


def _settled(most: int) -> Waits:
    """One that has found out that there is time to spare."""
    waits = Waits(most)
    for _ in range(TO_ONE + most):
        waits.round(late=0)
    assert waits.yielding.at_once == most
    return waits


def test_it_begins_slowly_and_goes_on_quickly_where_nothing_is_late() -> None:
    waits = Waits(4)
    assert waits.pace() == BEGIN
    assert [waits.round(late=0) for _ in range(TO_ONE + 4)] == [*[1] * TO_ONE, 2, 4, 4, 4]


def test_it_begins_slowly_again_when_backfill_comes_after_a_while() -> None:
    waits = _settled(3)
    for _ in range(5):
        waits.now += 0.9 * LIVE_SECONDS
        waits.yielding.met(waits.now, bulk=True)
    assert waits.yielding.at_once == 1, "which had not come yet"
    for _ in range(TO_ONE + 2):
        waits.yielding.met(waits.now, bulk=True)
        waits.round(late=0)
    assert waits.yielding.at_once == 3
    waits.now += 1.1 * LIVE_SECONDS
    waits.yielding.met(waits.now, bulk=True)
    assert waits.pace() == BEGIN


def test_it_gives_way_by_half_but_never_all_of_it() -> None:
    waits = _settled(11)
    assert [waits.round(late=10) for _ in range(6)] == [8, 4, 2, 1, 1, 1]


def test_it_comes_back_slowly_once_there_was_too_much_to_do() -> None:
    waits = _settled(3)
    assert [waits.round(late=20) for _ in range(2)] == [2, 1]  # of 1, 2, 3
    assert [waits.round(late=0) for _ in range(2 * CALM_ROUNDS + 3)] == [
        *[1] * (CALM_ROUNDS - 1),
        *[2] * CALM_ROUNDS,
        *[3] * 4,
    ]


def test_a_machine_that_is_late_at_times_has_neither_more_nor_less() -> None:
    waits = _settled(3)
    assert waits.round(late=20) == 2
    assert [waits.round(late=late) for late in (0, 0, 1, 0, 0, 1, 0, 0)] == [2] * 8


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

    waited(100, range(1, 1_000))
    assert waited(100, range(1_000, 2_000)) == {3}
    assert waited(3, range(2_000, 2_100)) == {3, 2, 1}, "a third of all is much"


def test_a_member_that_always_has_records_comes_to_its_part_and_one_that_waits_late_does_not() -> None:
    """Its client has always something of live traffic: it never waits."""
    for late, at_once in ((0, 4), (1, 1)):
        yielding, now = Yielding(4, 0.0), 0.0
        for _ in range(200):
            now += 1.0
            yielding.met(now, bulk=True)
            yielding.pause(now)
            if late and now % 4 == 0:
                yielding.waited(2 * LATE_SECONDS, now)
        assert yielding.at_once == at_once


def test_one_at_a_time_is_too_much_beside_live_traffic_and_nothing_else() -> None:
    waits = _settled(2)
    waits.round(late=20)
    assert (waits.yielding.at_once, waits.pace()) == (1, None), "first fewer at once, then pauses"
    for pace in (*reversed(PACES), PACES[0]):
        waits.round(late=20)
        assert waits.pace() == pace
    assert waits.yielding.pause(waits.now + LIVE_SECONDS) is None, "there is no live traffic"


def test_pauses_end_before_there_are_more_at_once() -> None:
    waits = _settled(2)
    for _ in range(3):
        waits.round(late=20)
    paces = []
    for _ in range(4):
        paces.append((waits.pace() is not None, waits.yielding.at_once))
        for _ in range(CALM_ROUNDS):
            waits.round(late=0)
    assert paces == [(True, 1), (True, 1), (False, 1), (False, 2)]
