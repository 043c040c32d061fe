"""What happens to a record after a failure: pure, given the clock and the dice."""

import math
import random
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType
from typing import TypeAlias

from offsetzero.errors import ConfigurationError
from offsetzero.retry.failures import DeadLettered, Failure, FailureClass
from offsetzero.settings import RetrySettings
from offsetzero.store.processed import Outcome

JITTER = 0.1  # share of the delay: spreads the records that one outage has brought together
ENDS: Mapping[FailureClass, Outcome] = MappingProxyType(
    {
        FailureClass.PERMANENT: Outcome.FAILED,
        FailureClass.CANCELLED: Outcome.CANCELLED,
        FailureClass.DISCARDED: Outcome.DISCARDED,
    }
)
"""Of the classes that end a record at once, without a dead letter."""


@dataclass(frozen=True, slots=True)
class Tier:
    """A retry topic: its name after the group's, and its delay in seconds."""

    name: str
    delay: float


@dataclass(frozen=True, slots=True)
class Again:
    """Once more in this process, a moment later; nothing is appended."""


@dataclass(frozen=True, slots=True)
class ToTier:
    """Append to `tier`; handle as `attempt` once the wall clock shows `due_ms`."""

    tier: Tier
    due_ms: int
    attempt: int


@dataclass(frozen=True, slots=True)
class ToDeadLetters:
    """Append to the dead-letter topic; the run fails."""


@dataclass(frozen=True, slots=True)
class End:
    """The event has this outcome, with no dead letter."""

    outcome: Outcome


Decision: TypeAlias = Again | ToTier | ToDeadLetters | End


class RetryPolicy:
    """Tiers in order. Attempts are one more than tiers: failure n goes to tier n, the last to the DLQ.

    Args:
        tiers: in order.
        jitter: share of a tier's delay that is added at most.
        attempts: how often a handler is called in one process before a transient failure counts.

    Raises:
        ConfigurationError: for two tiers of one name, or a tier shorter than the one before it.
    """

    def __init__(self, tiers: Sequence[Tier], jitter: float = JITTER, attempts: int = 1) -> None:
        self.tiers = tuple(tiers)
        self._jitter = jitter
        self._attempts = attempts
        problems = []
        if len({tier.name for tier in self.tiers}) != len(self.tiers):
            problems.append("retry: two tiers have one name")
        for before, after in zip(self.tiers, self.tiers[1:], strict=False):
            if after.delay < before.delay:
                problems.append(f"retry: tier {after.name} ({after.delay} s) is shorter than {before.name} before it")
        if problems:
            raise ConfigurationError(problems)

    @classmethod
    def from_settings(cls, settings: RetrySettings, jitter: float = JITTER, attempts: int = 1) -> "RetryPolicy":
        """The tiers that the settings name."""
        return cls([Tier(name, delay) for name, delay in settings.delays.items()], jitter, attempts)

    def decide(
        self,
        failure: Failure,
        attempt: int,
        now_ms: int,
        dice: random.Random,
        *,
        calls: int = 1,
        throttling: bool = False,
    ) -> Decision:
        """Where a record goes after `attempt` (1 is the first) failed.

        Args:
            failure: the classified failure.
            attempt: which attempt failed, from 1.
            now_ms: wall time, milliseconds.
            dice: for the jitter, uniform(0, jitter x delay).
            calls: how often this attempt was made in this process.
            throttling: whether the provider is known to throttle everybody: then a 429 says nothing about the record.
        """
        kind = failure.failure_class
        if (outcome := ENDS.get(kind)) is not None:
            return End(outcome)
        if kind is FailureClass.TRANSIENT and calls < self._attempts and not failure.retry_after:
            return Again()
        waits = kind is FailureClass.PROVIDER_DOWN or (kind is FailureClass.THROTTLED and throttling)
        if not self.tiers:
            return Again() if waits else ToDeadLetters()
        if waits:  # and consumes no attempt
            number = len(self.tiers) if kind is FailureClass.PROVIDER_DOWN else min(attempt, len(self.tiers))
            return self._retry(number, failure, attempt, now_ms, dice)
        if attempt > self._retries(failure.dead_letter):
            return ToDeadLetters()
        return self._retry(attempt, failure, attempt + 1, now_ms, dice)

    def _retries(self, dead_letter: DeadLettered) -> int:
        """How many attempts may fail before the one whose failure is a dead letter."""
        return {DeadLettered.LAST: len(self.tiers), DeadLettered.SECOND: 1}.get(dead_letter, 0)

    def _retry(self, number: int, failure: Failure, attempt: int, now_ms: int, dice: random.Random) -> ToTier:
        """Into tier `number`, or the first after it that is long enough; in the last one a record waits for longer."""
        asked = failure.retry_after or 0.0
        later = self.tiers[number - 1 :]
        tier = next((tier for tier in later if tier.delay >= asked), later[-1])
        delay = max(tier.delay, asked)
        wait = delay + dice.uniform(0, self._jitter * delay)
        return ToTier(tier, now_ms + math.ceil(wait * 1000), attempt)  # up: never early
