"""The failure table of the design, row by row, and the due times."""

import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from offsetzero.errors import ConfigurationError
from offsetzero.retry.failures import Bug, Failure, Permanent, Poison, ProviderDown, Throttled, Transient
from offsetzero.retry.policy import DeadLetter, Fail, Retry, RetryPolicy, Tier

NOW = 1_700_000_000_000
POLICY = RetryPolicy([Tier("retry-1m", 60), Tier("retry-10m", 600)])


def decide(failure: Failure, attempt: int, seed: int = 1) -> Retry | DeadLetter | Fail:
    return POLICY.decide(failure, attempt, NOW, random.Random(seed))


@pytest.mark.parametrize(
    ("failure", "path"),
    [
        (Transient("x"), ["retry-1m", "retry-10m", "dlq"]),
        (Throttled("x"), ["retry-1m", "retry-10m", "dlq"]),
        (Bug("x"), ["retry-1m", "dlq", "dlq"]),
        (Permanent("x"), ["failed", "failed", "failed"]),
        (Poison("x"), ["dlq", "dlq", "dlq"]),
    ],
    ids=lambda value: type(value).__name__ if isinstance(value, Failure) else "",
)
def test_where_each_failure_goes(failure: Failure, path: list[str]) -> None:
    for attempt, expected in enumerate(path, start=1):
        match decide(failure, attempt):
            case Retry() as retry:
                assert retry.tier.name == expected
                assert retry.attempt == attempt + 1
            case DeadLetter():
                assert expected == "dlq"
            case Fail():
                assert expected == "failed"


def test_a_provider_that_refuses_everybody_consumes_no_attempt_and_makes_no_dead_letter() -> None:
    for _ in range(50):
        decision = decide(ProviderDown("provider-401"), 3)
        assert isinstance(decision, Retry)
        assert decision.attempt == 3


@given(attempt=st.integers(1, 2), seed=st.integers(), asked=st.none() | st.floats(0, 5000))
def test_never_early_and_at_most_a_tenth_late(attempt: int, seed: int, asked: float | None) -> None:
    decision = decide(Throttled("throttled", retry_after=asked), attempt, seed)
    assert isinstance(decision, Retry)
    delay = max(decision.tier.delay, asked or 0)
    assert delay <= (decision.due_ms - NOW) / 1000 + 0.001
    assert (decision.due_ms - NOW) / 1000 <= delay * 1.1 + 0.001


def test_retry_after_picks_the_tier_that_is_long_enough() -> None:
    for asked, tier in [(10, "retry-1m"), (61, "retry-10m"), (6000, "retry-10m")]:
        decision = decide(Throttled("throttled", retry_after=asked), 1)
        assert isinstance(decision, Retry)
        assert decision.tier.name == tier


def test_without_tiers_the_first_failure_is_the_last() -> None:
    assert isinstance(RetryPolicy([]).decide(Transient("x"), 1, NOW, random.Random(1)), DeadLetter)


def test_tiers_that_cannot_work_are_named_together() -> None:
    with pytest.raises(ConfigurationError) as caught:
        RetryPolicy([Tier("a", 10), Tier("b", 5), Tier("a", 20)])
    assert len(caught.value.problems) == 2
