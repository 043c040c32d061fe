"""Lanes that were refused: how long they wait."""

import random

from offsetzero.producers import batches
from offsetzero.producers.batches import Blocked
from support import ManualClock


def test_a_refused_lane_waits_longer_each_time_up_to_a_minute() -> None:
    clock = ManualClock()
    blocked = Blocked(clock, random.Random(1))
    pauses = []
    for _ in range(9):
        pauses.append(blocked.refuse("a"))
        assert blocked.now() == ["a"]
        clock.advance(pauses[-1])
        assert blocked.now() == []
    assert [int(pause) for pause in pauses[:5]] == [1, 2, 4, 8, 16]
    assert 60 <= pauses[-1] <= 66


def test_an_accepted_lane_begins_anew() -> None:
    blocked = Blocked(ManualClock(), random.Random(1))
    blocked.refuse("a")
    blocked.refuse("a")
    blocked.accept("a")
    assert blocked.now() == []
    assert blocked.refuse("a") < 2


def test_memory_is_bounded() -> None:
    blocked = Blocked(ManualClock())
    for number in range(batches.MAX_BLOCKED + 5):
        blocked.refuse(str(number))
    assert len(blocked.now()) == batches.MAX_BLOCKED
    assert str(batches.MAX_BLOCKED + 4) in blocked.now()
