"""How many requests of a tenant are taken."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from offsetzero.api import limits
from offsetzero.api.limits import TenantLimits
from support import ManualClock


def test_a_burst_is_taken_and_then_the_rate() -> None:
    clock = ManualClock()
    limit = TenantLimits(rate=10, burst=5, monotonic=clock.monotonic)
    assert [limit.take("acme") for _ in range(5)] == [0.0] * 5
    wait = limit.take("acme")
    assert wait == pytest.approx(0.1)
    assert limit.take("other") == 0.0, "another tenant has its own"
    clock.advance(wait + 1e-9)
    assert limit.take("acme") == 0.0
    assert limit.take("acme") > 0
    clock.advance(100)
    assert [limit.take("acme") for _ in range(6)][:5] == [0.0] * 5, "a quiet time saves no more than a burst"


@given(st.lists(st.floats(0, 3), min_size=1, max_size=60), st.floats(0.1, 50), st.integers(1, 20))
def test_no_more_than_burst_and_rate_in_any_time(pauses: list[float], rate: float, burst: int) -> None:
    clock = ManualClock()
    limit = TenantLimits(rate, burst, clock.monotonic)
    taken = []
    for pause in pauses:
        clock.advance(pause)
        if limit.take("acme") == 0.0:
            taken.append(clock.monotonic())
        else:
            wait = limit.take("acme")
            clock.advance(wait + 1e-6)
            assert limit.take("acme") == 0.0, "who waits as long as was said is taken"
            taken.append(clock.monotonic())
    for first in range(len(taken)):
        for last in range(first, len(taken)):
            assert last - first + 1 <= burst + (taken[last] - taken[first]) * rate + 1e-3


def test_tenants_that_are_quiet_cost_no_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(limits, "_FORGET", 10)
    clock = ManualClock()
    limit = TenantLimits(rate=10, burst=1, monotonic=clock.monotonic)
    for number in range(100):
        limit.take(f"tenant-{number}")
        clock.advance(1)
    assert len(limit._due) <= 10
