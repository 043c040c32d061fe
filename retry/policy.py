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
    """Append to `tier`; handle as `attempt` once the wall clock shows `due_ms`.

    `until_ms` is when its time has come, where it is to wait in the tier once more before that; else 0.
    """

    tier: Tier
    due_ms: int
    attempt: int
    until_ms: int = 0


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
        in_order: whether tiers are read in the order of their offsets: then no record may wait in one for longer than
            its delay, for it would hold up those behind it; it is appended to the last one once more instead.

    Raises:
        ConfigurationError: for two tiers of one name, or a tier shorter than the one before it.
    """

    def __init__(
        self, tiers: Sequence[Tier], jitter: float = JITTER, attempts: int = 1, *, in_order: bool = False
    ) -> None:
        self.tiers = tuple(tiers)
        self._jitter = 0.0 if in_order else jitter
        self._attempts = attempts
        self._in_order = in_order
        problems = []
        if len({tier.name for tier in self.tiers}) != len(self.tiers):
            problems.append("retry: two tiers have one name")
        for before, after in zip(self.tiers, self.tiers[1:], strict=False):
            if after.delay < before.delay:
                problems.append(f"retry: tier {after.name} ({after.delay} s) is shorter than {before.name} before it")
        if problems:
            raise ConfigurationError(problems)

    @classmethod
    def from_settings(cls, settings: RetrySettings, attempts: int = 1, *, in_order: bool = False) -> "RetryPolicy":
        """The tiers that the settings name."""
        tiers = [Tier(name, delay) for name, delay in settings.delays.items()]
        return cls(tiers, attempts=attempts, in_order=in_order)

    def decide(
        self,
        failure: Failure,
        attempt: int,
        now_ms: int,
        dice: random.Random,
        *,
        calls: int = 1,
        bug_before: bool = False,
    ) -> Decision:
        """Where a record goes after `attempt` (1 is the first) failed.

        Args:
            failure: the classified failure.
            attempt: which attempt failed, from 1.
            now_ms: wall time, milliseconds.
            dice: for the jitter, uniform(0, jitter x delay).
            calls: how often this attempt was made in this process.
            bug_before: whether the attempt before this one failed as a bug, too.
        """
        kind = failure.failure_class
        if (outcome := ENDS.get(kind)) is not None:
            return End(outcome)
        if kind is FailureClass.TRANSIENT and calls < self._attempts and not failure.retry_after:
            return Again()
        waits = kind is FailureClass.PROVIDER_DOWN
        if not self.tiers:
            return Again() if waits else ToDeadLetters()
        if waits:  # and consumes no attempt
            return self._retry(len(self.tiers), failure, attempt, now_ms, dice)
        if attempt > len(self.tiers) or not self._is_tried_again(failure, bug_before=bug_before):
            return ToDeadLetters()
        return self._retry(attempt, failure, attempt + 1, now_ms, dice)

    def wait_on(self, until_ms: int, attempt: int, now_ms: int) -> ToTier | Again:
        """Into the last tier once more, of a record whose time has not come; no attempt is consumed.

        Args:
            until_ms: when it will have come, wall time in milliseconds.
            attempt: the one that is due then.
            now_ms: wall time, milliseconds.
        """
        if not self.tiers:
            return Again()
        tier = self.tiers[-1]
        return ToTier(tier, min(until_ms, now_ms + math.ceil(tier.delay * 1000)), attempt, until_ms)

    @staticmethod
    def _is_tried_again(failure: Failure, *, bug_before: bool) -> bool:
        """Whether a failure is worth another try, as long as there are tiers: that of a bug is, once."""
        dead_letter = failure.dead_letter
        return dead_letter is DeadLettered.LAST or (dead_letter is DeadLettered.SECOND and not bug_before)

    def _retry(self, number: int, failure: Failure, attempt: int, now_ms: int, dice: random.Random) -> ToTier | Again:
        """Into tier `number`, or the first after it that is long enough; in the last one it can wait for longer."""
        asked = failure.retry_after or 0.0
        later = self.tiers[number - 1 :]
        tier = next((tier for tier in later if tier.delay >= asked), later[-1])
        if self._in_order and asked > tier.delay:
            return self.wait_on(now_ms + math.ceil(asked * 1000), attempt, now_ms)
        delay = max(tier.delay, asked)
        wait = delay + dice.uniform(0, self._jitter * delay)
        return ToTier(tier, now_ms + math.ceil(wait * 1000), attempt)  # up: never early
