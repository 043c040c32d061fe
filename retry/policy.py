"""What happens to a record after a failure: pure, given the clock and the dice."""

import random
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TypeAlias

from offsetzero.errors import ConfigurationError
from offsetzero.retry.failures import Failure, FailureClass
from offsetzero.settings import RetrySettings

JITTER = 0.1  # share of the delay: spreads the records that one outage has brought together


@dataclass(frozen=True, slots=True)
class Tier:
    """A retry topic: its name after the group's, and its delay in seconds."""

    name: str
    delay: float


@dataclass(frozen=True, slots=True)
class Retry:
    """Append to `tier`; handle as `attempt` once the wall clock shows `due_ms`."""

    tier: Tier
    due_ms: int
    attempt: int


@dataclass(frozen=True, slots=True)
class DeadLetter:
    """Append to the dead-letter topic; the run fails."""


@dataclass(frozen=True, slots=True)
class Fail:
    """The run fails, with no dead letter."""


Decision: TypeAlias = Retry | DeadLetter | Fail


class RetryPolicy:
    """Tiers in order. Attempts are one more than tiers: failure n goes to tier n, the last to the DLQ.

    Args:
        tiers: in order.
        jitter: share of a tier's delay that is added at most.

    Raises:
        ConfigurationError: for two tiers of one name, or a tier shorter than the one before it.
    """

    def __init__(self, tiers: Sequence[Tier], jitter: float = JITTER) -> None:
        self.tiers = tuple(tiers)
        self._jitter = jitter
        problems = []
        if len({tier.name for tier in self.tiers}) != len(self.tiers):
            problems.append("retry: two tiers have one name")
        for before, after in zip(self.tiers, self.tiers[1:], strict=False):
            if after.delay < before.delay:
                problems.append(f"retry: tier {after.name} ({after.delay} s) is shorter than {before.name} before it")
        if problems:
            raise ConfigurationError(problems)

    @classmethod
    def from_settings(cls, settings: RetrySettings, jitter: float = JITTER) -> "RetryPolicy":
        """The tiers that the settings name."""
        return cls([Tier(name, delay) for name, delay in settings.delays.items()], jitter)

    def decide(self, failure: Failure, attempt: int, now_ms: int, dice: random.Random) -> Decision:
        """Where a record goes after `attempt` (1 is the first) failed.

        Args:
            failure: the classified failure.
            attempt: which attempt failed, from 1.
            now_ms: wall time, milliseconds.
            dice: for the jitter, uniform(0, jitter x delay).
        """
        kind = failure.failure_class
        if kind is FailureClass.PERMANENT:
            return Fail()
        if kind is FailureClass.POISON or not self.tiers:
            return DeadLetter()
        if kind is FailureClass.PROVIDER_DOWN:
            return self._retry(len(self.tiers), failure, attempt, now_ms, dice)
        last = 1 if kind is FailureClass.BUG else len(self.tiers)
        if attempt > last:
            return DeadLetter()
        return self._retry(attempt, failure, attempt + 1, now_ms, dice)

    def _retry(self, number: int, failure: Failure, attempt: int, now_ms: int, dice: random.Random) -> Retry:
        asked = failure.retry_after or 0.0
        tier = self.tiers[number - 1]
        for longer in self.tiers[number:]:
            if tier.delay >= asked:
                break
            tier = longer
        delay = max(tier.delay, asked)
        return Retry(tier, now_ms + round((delay + dice.uniform(0, self._jitter * delay)) * 1000), attempt)
