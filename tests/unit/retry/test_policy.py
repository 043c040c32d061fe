"""Which tier a record goes to, and when it is due there."""

import random
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from offsetzero.errors import ConfigurationError
from offsetzero.retry.failures import Bug, Failure, ProviderDown, Throttled, Transient
from offsetzero.retry.policy import Again, Decision, RetryPolicy, Tier, ToDeadLetters, ToTier

NOW = 1_700_000_000_000
POLICY = RetryPolicy([Tier("retry-1m", 60), Tier("retry-10m", 600)])


def decide(failure: Failure, attempt: int, seed: int = 1, **more: Any) -> Decision:
    return POLICY.decide(failure, attempt, NOW, random.Random(seed), **more)


def test_a_provider_that_refuses_everybody_consumes_no_attempt_and_makes_no_dead_letter() -> None:
    for _ in range(50):
        decision = decide(ProviderDown("provider-401"), 3)
        assert isinstance(decision, ToTier)
        assert decision.attempt == 3


@given(attempt=st.integers(1, 2), seed=st.integers(), asked=st.none() | st.floats(0, 5000))
def test_never_early_and_at_most_a_tenth_late(attempt: int, seed: int, asked: float | None) -> None:
    decision = decide(Throttled("throttled", retry_after=asked), attempt, seed)
    assert isinstance(decision, ToTier)
    delay = max(decision.tier.delay, asked or 0)
    assert NOW + delay * 1000 <= decision.due_ms
    assert (decision.due_ms - NOW) / 1000 <= delay * 1.1 + 0.001


class NoLuck(random.Random):
    """Adds nothing."""

    def uniform(self, a: float, b: float) -> float:
        return a


@pytest.mark.parametrize(("delay", "due"), [(60.0, 60_000), (0.0, 0), (0.0004, 1), (1.0001, 1001)])
def test_without_jitter_it_is_due_after_the_delay_to_the_millisecond(delay: float, due: int) -> None:
    decision = RetryPolicy([Tier("retry", delay)]).decide(Transient("x"), 1, NOW, NoLuck())
    assert isinstance(decision, ToTier)
    assert decision.due_ms == NOW + due


def test_retry_after_picks_the_tier_that_is_long_enough() -> None:
    for asked, tier in [(10, "retry-1m"), (61, "retry-10m"), (6000, "retry-10m")]:
        decision = decide(Throttled("throttled", retry_after=asked), 1)
        assert isinstance(decision, ToTier)
        assert decision.tier.name == tier


def test_beyond_the_last_tier_a_record_waits_in_it_and_loses_no_attempt() -> None:
    """spring-kafka#1766, spring-kafka#1716: another tier's delay was waited for."""
    decision = decide(Throttled("throttled", retry_after=6000), 1)
    assert isinstance(decision, ToTier)
    assert (decision.tier.name, decision.attempt) == ("retry-10m", 2)
    assert NOW + 6_000_000 <= decision.due_ms <= NOW + 6_600_001


def test_where_a_tier_is_read_in_order_a_record_waits_in_it_again_and_again() -> None:
    """Otherwise it would hold up those behind it."""
    policy = RetryPolicy(POLICY.tiers, in_order=True)
    decision: Decision = policy.decide(Throttled("throttled", retry_after=1500), 1, NOW, random.Random(1))
    dues = []
    while isinstance(decision, ToTier):
        assert (decision.tier.name, decision.attempt, decision.until_ms) == ("retry-10m", 2, NOW + 1_500_000)
        dues.append(decision.due_ms - NOW)
        if decision.due_ms >= decision.until_ms:
            break
        decision = policy.wait_on(decision.until_ms, decision.attempt, decision.due_ms)
    assert dues == [600_000, 1_200_000, 1_500_000]
    short = policy.decide(Throttled("throttled", retry_after=61), 1, NOW, random.Random(1))
    assert short == ToTier(POLICY.tiers[1], NOW + 600_000, 2)
    assert isinstance(RetryPolicy([], in_order=True).wait_on(NOW + 1, 1, NOW), Again)


def test_a_bug_gets_one_more_try_whenever_it_is_first_seen() -> None:
    """A time-out at the first attempt, and an exception at the second: that one may pass, too."""
    for attempt in (1, 2):
        decision = decide(Bug("x"), attempt)
        assert isinstance(decision, ToTier)
        assert (decision.tier, decision.attempt) == (POLICY.tiers[attempt - 1], attempt + 1)
        assert isinstance(decide(Bug("x"), attempt, bug_before=True), ToDeadLetters)
    assert isinstance(decide(Transient("x"), 2, bug_before=True), ToTier)
    assert isinstance(decide(Bug("x"), 3), ToDeadLetters), "there is no tier after the last"


def test_a_transient_failure_is_tried_again_in_the_process_as_often_as_declared() -> None:
    policy = RetryPolicy(POLICY.tiers, attempts=3)

    def after(failure: Failure, calls: int) -> Decision:
        return policy.decide(failure, 1, NOW, random.Random(1), calls=calls)

    assert [isinstance(after(Transient("x"), calls), Again) for calls in (1, 2, 3)] == [True, True, False]
    for others in (Bug("x"), Throttled("x"), ProviderDown("x"), Transient("x", retry_after=1)):
        assert isinstance(after(others, 1), ToTier), "nor is one that asks for a wait called early"


def test_without_tiers_a_record_waits_in_the_process_for_a_provider() -> None:
    decision = RetryPolicy([]).decide(ProviderDown("provider-401"), 1, NOW, random.Random(1))
    assert isinstance(decision, Again)


def test_without_tiers_the_first_failure_is_the_last() -> None:
    assert isinstance(RetryPolicy([]).decide(Transient("x"), 1, NOW, random.Random(1)), ToDeadLetters)


def test_tiers_that_cannot_work_are_named_together() -> None:
    with pytest.raises(ConfigurationError) as caught:
        RetryPolicy([Tier("a", 10), Tier("b", 5), Tier("a", 20)])
    assert len(caught.value.problems) == 2


def test_a_provider_that_refuses_everybody_is_waited_for_in_the_last_tier() -> None:
    decision = decide(ProviderDown("provider-401"), 1)
    assert isinstance(decision, ToTier)
    assert decision.tier.name == "retry-10m"
