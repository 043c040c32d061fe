"""How fast a provider is called: never faster than allowed, slower after a 429, and back in time."""

from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from offsetzero.retry.bucket import MAX_PAUSE, RAMP_SECONDS, SEEN_SECONDS, SLOWEST, Bucket

CEILINGS = st.floats(0.1, 1000)
STEPS = st.lists(st.tuples(st.sampled_from(["take", "slow", "back"]), st.floats(0, 30)), max_size=60)


def drive(ceiling: float, steps: list[tuple[str, float]]) -> list[tuple[float, Bucket, bool]]:
    """A bucket through what happens to it: the time, what it is then, and whether a call began."""
    now, bucket = 1000.0, Bucket.full(1000.0, ceiling)
    seen = []
    for what, seconds in steps:
        now += seconds if what != "back" else -seconds
        began = False
        if what == "slow":
            bucket = bucket.slow(now, ceiling, now - seconds / 2, seconds)
        else:
            bucket, wait = bucket.take(now, ceiling)
            began = not wait
        seen.append((now, bucket, began))
    return seen


@given(ceiling=CEILINGS, steps=STEPS)
def test_no_more_calls_begin_than_the_full_rate_allows(ceiling: float, steps: list[tuple[str, float]]) -> None:
    forward = [(what, seconds) for what, seconds in steps if what != "back"]
    seen = drive(ceiling, forward)
    elapsed = sum(seconds for _, seconds in forward)
    assert sum(began for _, _, began in seen) <= max(1.0, ceiling) + ceiling * elapsed + 1e-6


@given(ceiling=CEILINGS, steps=STEPS)
def test_it_stays_within_its_bounds_even_when_the_clock_is_set_back(
    ceiling: float, steps: list[tuple[str, float]]
) -> None:
    for now, bucket, _ in drive(ceiling, steps):
        assert min(SLOWEST, ceiling) <= bucket.rate <= ceiling
        assert 0 <= bucket.tokens <= max(1.0, ceiling)
        assert bucket.at_time(now, ceiling).paused_until <= now + MAX_PAUSE


@given(ceiling=CEILINGS, steps=STEPS, one=st.floats(0, 400), two=st.floats(0, 400))
def test_it_does_not_matter_how_often_it_is_looked_at(
    ceiling: float, steps: list[tuple[str, float]], one: float, two: float
) -> None:
    now, bucket, _ = drive(ceiling, [*steps, ("slow", 1.0)])[-1]
    at_once = bucket.at_time(now + one + two, ceiling)
    in_two = bucket.at_time(now + one, ceiling).at_time(now + one + two, ceiling)
    assert at_once.rate == pytest.approx(in_two.rate)
    assert in_two.tokens <= at_once.tokens + 1e-6 * (1 + at_once.tokens)


@given(ceiling=CEILINGS, steps=STEPS)
def test_the_time_to_wait_is_exact(ceiling: float, steps: list[tuple[str, float]]) -> None:
    now, bucket, _ = drive(ceiling, [*steps, ("slow", 1.0)])[-1]
    same, wait = bucket.take(now, ceiling)
    assert wait > 0
    assert same == bucket
    if bucket.paused_until <= now:
        assert bucket.take(now + wait * 0.99 - 1e-6, ceiling)[1] > 0 or wait < 1e-4
    longer = bucket.take(now + wait + 1e-6, ceiling)[1]  # behind a pause there may be no token yet
    assert longer == 0 or bucket.paused_until > now


def test_a_429_halves_what_was_really_called_once_for_all_calls_of_that_time() -> None:
    bucket, now = Bucket.full(0.0, 100.0), 0.0
    while now < 5 * SEEN_SECONDS:  # 8 calls a second
        bucket, wait = bucket.take(now, 100.0)
        assert not wait
        now += 0.125
    slowed = bucket.slow(now, 100.0, now - 1, None)
    assert slowed.rate == pytest.approx(4, rel=0.1)
    assert slowed.is_slowed(now, 100.0)
    for begun in (now - 3, now - 0.5, now):  # in flight when the first one got it
        assert slowed.slow(now + 0.1, 100.0, begun, None).rate == pytest.approx(slowed.rate, rel=0.02)
    assert slowed.slow(now + 2, 100.0, now + 1, None).rate < slowed.rate


def test_it_ramps_back_by_the_same_amount_each_second() -> None:
    bucket = Bucket.full(0.0, 30.0).slow(1.0, 30.0, 0.5, None)
    rates = [bucket.at_time(1.0 + second, 30.0).rate for second in range(0, 290, 10)]
    assert {round(after - before, 6) for before, after in pairwise(rates)} == {1.0}
    after = bucket.at_time(2.0 + RAMP_SECONDS, 30.0)
    assert after.rate == 30.0
    assert not after.is_slowed(2.0 + RAMP_SECONDS, 30.0)


def test_nobody_calls_before_a_retry_after_and_a_day_of_it_does_not_stop_all() -> None:
    bucket = Bucket.full(0.0, 10.0).slow(1.0, 10.0, 0.5, 4.0)
    assert bucket.take(4.9, 10.0)[1] == pytest.approx(0.1)
    assert bucket.take(5.0, 10.0)[1] == 0
    assert Bucket.full(0.0, 10.0).slow(1.0, 10.0, 0.5, 86_400.0).take(1.0 + MAX_PAUSE, 10.0)[1] == 0


@pytest.mark.parametrize("limit", [2.0, 10.0, 40.0])
def test_it_finds_a_limit_that_nobody_told(limit: float) -> None:
    """A provider that takes `limit` calls a second, and 429s the others: most of it is used, few are refused."""
    bucket, now, served, refused, room = Bucket.full(0.0, 100.0), 0.0, 0, 0, limit
    while now < 600:
        bucket, wait = bucket.take(now, 100.0)
        if not wait:
            if room >= 1:
                room, served = room - 1, served + 1
            else:
                refused += 1
                bucket = bucket.slow(now, 100.0, now, None)
        step = max(wait, 0.005)
        now, room = now + step, min(limit, room + step * limit)
    assert served >= 0.6 * limit * 600
    assert refused <= 0.15 * served


def test_after_a_429_that_names_no_time_no_token_is_left() -> None:
    slowed = Bucket.full(0.0, 10.0).slow(1.0, 10.0, 0.5, None)
    assert slowed.take(1.0, 10.0)[1] > 0
    named = Bucket.full(0.0, 10.0).slow(1.0, 10.0, 0.5, 4.0)
    bucket, wait = named.take(5.0, 10.0)
    assert not wait
    assert bucket.take(5.0, 10.0)[1] > 0, "one, not all of those that were saved"
