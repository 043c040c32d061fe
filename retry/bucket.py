"""How fast a provider is called: a token bucket that a 429 slows down, and time speeds up again. Pure.

Slowed by half, sped up by a constant a second (additive increase, multiplicative decrease: RFC 5681 does so for
packets), which shares a limit that nobody has told us fairly, and finds it again after it has changed.
"""

import math
from dataclasses import dataclass, replace

RAMP_SECONDS = 300.0
"""From nothing to the full rate, when no 429 comes."""
SLOWEST = 0.05  # calls a second
MAX_PAUSE = 300.0
"""Seconds of a `Retry-After` for which everybody waits; one that asks for longer is alone in that."""
SEEN_SECONDS = 2.0  # over which the rate of what was really called is measured


@dataclass(frozen=True, slots=True)
class Bucket:
    """As it was at one moment; times are seconds of one clock.

    Attributes:
        rate: calls a second.
        tokens: calls that may begin at once; a second of the rate at most, and at least one.
        at: the moment.
        seen: calls of late, each of less weight the longer ago.
        paused_until: before that nothing may begin.
        slowed_at: when a 429 last slowed it down.
    """

    rate: float
    tokens: float
    at: float
    seen: float = 0.0
    paused_until: float = 0.0
    slowed_at: float = 0.0

    @classmethod
    def full(cls, now: float, ceiling: float) -> "Bucket":
        """One that was never slowed."""
        return cls(ceiling, max(1.0, ceiling), now)

    def at_time(self, now: float, ceiling: float) -> "Bucket":
        """The same some time later, however often it was looked at between. A clock that steps back changes nothing.

        Args:
            now: the moment.
            ceiling: calls a second at most.
        """
        passed = max(0.0, now - self.at)
        step = ceiling / RAMP_SECONDS
        rate = min(self.rate, ceiling)
        rising = min(passed, (ceiling - rate) / step)
        gained = rate * rising + step * rising**2 / 2 + ceiling * (passed - rising)
        rate = ceiling if rising < passed else rate + step * rising
        return replace(
            self,
            rate=rate,
            tokens=min(max(1.0, rate), self.tokens + gained),
            at=now,
            seen=self.seen * math.exp(-passed / SEEN_SECONDS),
            paused_until=min(self.paused_until, now + MAX_PAUSE),
            slowed_at=min(self.slowed_at, now),
        )

    def take(self, now: float, ceiling: float) -> "tuple[Bucket, float]":
        """Begin a call.

        Returns:
            The bucket without its token, and 0; or itself as it is, and the seconds until there is a token.
        """
        new = self.at_time(now, ceiling)
        if new.paused_until > now:
            return self, new.paused_until - now
        if new.tokens >= 1:
            return replace(new, tokens=new.tokens - 1, seen=new.seen + 1), 0.0
        step, lacking = ceiling / RAMP_SECONDS, 1 - new.tokens
        return self, (math.sqrt(new.rate**2 + 2 * step * lacking) - new.rate) / step

    def slow(self, now: float, ceiling: float, begun: float, retry_after: float | None) -> "Bucket":
        """A call got a 429: half of the rate that was really called with, once for all calls of that time.

        Args:
            now: the moment.
            ceiling: calls a second at most.
            begun: when that call had begun.
            retry_after: seconds that the provider asked for.
        """
        new = self.at_time(now, ceiling)
        paused_until = max(new.paused_until, now + min(retry_after or 0.0, MAX_PAUSE))
        if begun <= new.slowed_at:
            return replace(new, paused_until=paused_until)
        rate = min(ceiling, max(SLOWEST, min(new.rate, new.seen / SEEN_SECONDS) / 2))
        tokens = min(1.0, new.tokens) if retry_after else 0.0  # the provider has said when it takes the next one
        return replace(new, rate=rate, tokens=tokens, paused_until=paused_until, slowed_at=now)

    def is_slowed(self, now: float, ceiling: float) -> bool:
        """Whether the provider is known to throttle: it has, and the rate is not back where it was."""
        return self.slowed_at > 0 and self.at_time(now, ceiling).rate < ceiling
