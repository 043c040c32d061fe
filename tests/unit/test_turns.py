"""The health of a process that looks for work again and again, and the gauge that its alert looks at."""

from offsetzero import metrics
from offsetzero.turns import Turns
from support import ManualClock


def test_one_that_does_not_turn_is_not_well_and_its_gauge_stands_still() -> None:
    clock = ManualClock()
    turns = Turns("sweeper", clock, 90)
    clock.advance(80)
    turns.turn()
    turned = clock.now().timestamp()
    clock.advance(89)
    assert turns.health() == (True, {"sweeper": {"turned_seconds_ago": 89.0}})
    clock.advance(1)
    assert not turns.health()[0]
    assert metrics.TURNED.labels("sweeper")._value.get() == turned
