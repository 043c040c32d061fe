"""All that is known of a provider, by all processes together: its breaker, its bucket, and who calls it now. Pure.

One value, kept in one row of the database: whoever asks locks it, decides here, and writes it back. Permits are leases:
a process that dies renews them no more. Times are seconds of the database's clock.
"""

import dataclasses
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field, replace
from enum import StrEnum
from typing import Any

from offsetzero.retry.breaker import UNAUTHORISED, Answer, Breaker, Call, Caller, Fault, Refusal
from offsetzero.retry.bucket import Bucket
from offsetzero.settings import ProviderSettings

LEASE_SECONDS = 20.0
"""For which a permit is held without being renewed; it is renewed three times as often."""


@dataclass(frozen=True, slots=True)
class Limits:
    """Of one provider.

    Attributes:
        calls: at once, over all processes.
        rate: calls a second, over all processes, when it does not throttle.
        interval: seconds between two probes while it is down.
    """

    calls: int
    rate: float
    interval: float

    @classmethod
    def of(cls, settings: ProviderSettings, name: str) -> "Limits":
        """What the settings say of a provider."""
        own = settings.limits.get(name)
        return cls(
            calls=(own and own.calls) or settings.calls,
            rate=(own and own.rate) or settings.rate,
            interval=settings.probe_seconds,
        )


class Why(StrEnum):
    """Why a call has to wait."""

    DOWN = "down"
    DOUBT = "doubt"  # it is being found out whether the provider is down
    THROTTLED = "throttled"
    BUSY = "busy"  # as many calls as there may be


@dataclass(frozen=True, slots=True)
class Wait:
    """A call may not begin: what to show for it, and after how many seconds to ask again."""

    why: Why
    seconds: float


@dataclass(frozen=True, slots=True)
class Protection:
    """A provider at one moment; `permits` has those of calls that run, each with the end of its lease."""

    bucket: Bucket
    breaker: Breaker = field(default_factory=Breaker)
    permits: Mapping[str, float] = field(default_factory=dict)

    @classmethod
    def new(cls, now: float, limits: Limits) -> "Protection":
        """Of a provider that nobody has called yet."""
        return cls(Bucket.full(now, limits.rate))

    def wait(self, now: float, limits: Limits) -> Wait | None:
        """What everybody has to wait for, None when a call may begin as far as breaker and pause say."""
        if seconds := self.breaker.wait(now, limits.interval, probing=self._is_probing(now)):
            return Wait(Why.DOWN, seconds)
        if (seconds := self.bucket.paused_until - now) > 0:
            return Wait(Why.THROTTLED, seconds)
        return None

    def begin(self, now: float, permit: str, caller: Caller, limits: Limits) -> "tuple[Protection, Wait | None]":
        """Ask for a call.

        Returns:
            With the permit and None, or as it was and what to wait for.
        """
        breaker, seconds = self.breaker.begin(now, permit, caller, limits.interval, probing=self._is_probing(now))
        if seconds:
            return self, Wait(Why.DOWN, seconds)
        live = {one: ends for one, ends in self.permits.items() if ends > now}
        if len(live) >= limits.calls:
            return self, Wait(Why.BUSY, 1.0)
        bucket, seconds = self.bucket.take(now, limits.rate)
        if seconds:
            return self, Wait(Why.THROTTLED, seconds)
        return Protection(bucket, breaker, {**live, permit: now + LEASE_SECONDS}), None

    def renew(self, now: float, permits: Collection[str]) -> "Protection":
        """Calls still run: their leases begin anew."""
        kept = {one: end for one, end in self.permits.items() if end > now}
        return replace(self, permits=kept | dict.fromkeys(permits, now + LEASE_SECONDS))

    def not_ahead_of(self, now: float, limits: Limits) -> "Protection":
        """The same by a clock that was set back: nobody waits for longer than if it had all happened now."""
        ends = now + LEASE_SECONDS
        return Protection(
            self.bucket if self.bucket.at <= now else self.bucket.at_time(now, limits.rate),
            self.breaker.not_ahead_of(now, limits.interval),
            {one: min(end, ends) for one, end in self.permits.items()},
        )

    def end(
        self,
        now: float,
        call: Call,
        answer: Answer,
        limits: Limits,
        *,
        retry_after: float | None = None,
        cause: str = UNAUTHORISED,
    ) -> "Protection":
        """A call has ended: its permit is free.

        Args:
            now: the moment.
            call: which.
            answer: what it came to.
            limits: of the provider.
            retry_after: seconds, with a 429 that names them.
            cause: for `Answer.DOWN`, why.
        """
        bucket = self.bucket
        if answer is Answer.THROTTLED:
            bucket = bucket.slow(now, limits.rate, call.begun, retry_after)
        permits = {one: ends for one, ends in self.permits.items() if one != call.permit}
        return Protection(bucket, self.breaker.end(now, call, answer, limits.interval, cause), permits)

    def fault(self, now: float, call: Call, answer: Answer, ended: float, limits: Limits) -> Fault:
        """Whose fault a failed call is; asked before `end` for a 429, and after it for the others.

        The first 429 is its record's; while the provider is known to throttle, it is nobody's.
        """
        if answer is Answer.THROTTLED:
            return Fault.PROVIDERS if self.bucket.is_slowed(now, limits.rate) else Fault.OWN
        return self.breaker.fault(now, call, answer, ended)

    def _is_probing(self, now: float) -> bool:
        return self.permits.get(self.breaker.probe, now) > now

    # --- as JSON

    def to_json(self) -> dict[str, Any]:
        """As it is stored."""
        return {
            "bucket": dataclasses.asdict(self.bucket),
            "breaker": dataclasses.asdict(self.breaker),
            "permits": dict(self.permits),
        }

    @classmethod
    def from_json(cls, stored: Mapping[str, Any]) -> "Protection":
        """What `to_json` made."""
        breaker = dict(stored["breaker"])
        breaker["recent"] = tuple((mark, tenant) for mark, tenant in breaker["recent"])
        breaker["refusals"] = tuple(Refusal(**one) for one in breaker["refusals"])
        return cls(Bucket(**stored["bucket"]), Breaker(**breaker), dict(stored["permits"]))
