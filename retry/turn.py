"""One look of this process at a provider: what its handlers ask and tell, in one decision. Pure."""

import secrets
from collections.abc import Callable, Collection
from concurrent.futures import Future
from dataclasses import dataclass, field
from typing import TypeAlias

from offsetzero.retry.breaker import DOUBT_SECONDS, UNAUTHORISED, Answer, Call, Caller, Fault
from offsetzero.retry.protection import Limits, Protection, Wait, Why

AWAY = Wait(Why.DOUBT, 1.0)
"""Where nothing is known: the database is away, or this process ends."""
Lose: TypeAlias = Callable[[], None]
"""Told that others have a call's place by now; it must not block."""
SETTLED = frozenset({Answer.SERVED, Answer.ANSWERED, Answer.UNKNOWN})
"""After which nobody waits for whose fault it is."""


@dataclass(frozen=True, slots=True)
class Permit:
    """A call may run until it is ended."""

    provider: str
    call: Call


@dataclass(slots=True, eq=False)
class Asking:
    """Somebody waits for a call, until a moment (monotonic seconds); `lose` ends the call if others get its place."""

    caller: Caller
    until: float
    future: "Future[Permit | Wait]"
    lose: Lose | None = None
    call: Call | None = None
    wait: Wait | None = None

    def answered(self, answer: Permit | Wait) -> bool:
        """Tell who waits for it; false when nobody does any more."""
        if not self.future.set_running_or_notify_cancel():
            return False
        self.future.set_result(answer)
        return True


@dataclass(slots=True, eq=False)
class Ended:
    """A call has ended; `future`, if any, waits for whose fault that is: None for its own."""

    call: Call
    answer: Answer
    retry_after: float | None = None
    cause: str = UNAUTHORISED
    future: "Future[Wait | None] | None" = None
    at: float = 0.0
    fault: Fault = Fault.UNDECIDED

    def answered(self, wait: Wait | None) -> None:
        """Tell who waits for it."""
        if self.future is not None and self.future.set_running_or_notify_cancel():
            self.future.set_result(wait)
        self.future = None


@dataclass(slots=True)
class Turn:
    """What is asked and told at once.

    Attributes:
        limits: of the provider.
        asking: in the order in which they came.
        ended: calls that are told for the first time.
        doubts: calls that failed, of which it is not known yet whose fault that is.
        renewed: permits to renew.
        known: what is known in the end.
        at: when, by the store's clock.
        lost: permits whose leases had ended, and whose places others have by now.
    """

    limits: Limits
    asking: list[Asking]
    ended: list[Ended]
    doubts: list[Ended]
    renewed: Collection[str]
    known: Protection | None = None
    at: float = 0.0
    lost: list[str] = field(default_factory=list)

    def decide(self, before: Protection | None, now: float) -> Protection | None:
        """Go through all of it; what was written is forgotten when it was not kept.

        Args:
            before: what is known, None for a provider that nobody has called.
            now: by the store's clock.

        Returns:
            What is known then, None when that is the same.
        """
        known = before.not_ahead_of(now, self.limits) if before else Protection.new(now, self.limits)
        lapsed = sorted(one for one in self.renewed if known.permits.get(one, now) <= now)
        if self.renewed:
            known = known.renew(now, self.renewed)
        for one in self.ended:
            one.at = now
            one.fault = known.fault(now, one.call, one.answer, now, self.limits)  # of a 429: was it known before?
            known = known.end(now, one.call, one.answer, self.limits, retry_after=one.retry_after, cause=one.cause)
        self.lost = lapsed[: max(0, len(known.permits) - self.limits.calls)] if lapsed else []
        for asking in self.asking:
            call = Call(secrets.token_hex(8), asking.caller, now)
            known, asking.wait = known.begin(now, call.permit, asking.caller, self.limits)
            asking.call = call if asking.wait is None else None
        for one in (*self.doubts, *self.ended):
            one.at = min(one.at, now)
            if one.answer is not Answer.THROTTLED:
                one.fault = known.fault(now, one.call, one.answer, one.at, self.limits)
        self.known, self.at = known, now
        return known if known != before else None

    def verdict(self, one: Ended) -> tuple[bool, Wait | None]:
        """Whether it is known what a failed call's record has to do, and what: None when the failure is its own."""
        assert self.known is not None  # noqa: S101 - it was decided
        wait = self.known.wait(self.at, self.limits)
        if one.fault is Fault.OWN:
            return True, None
        if one.fault is Fault.PROVIDERS:
            if one.answer is Answer.THROTTLED:
                return True, Wait(Why.THROTTLED, max(one.retry_after or 0.0, wait.seconds if wait else 0.0))
            return True, wait or AWAY
        return self.at - one.at >= DOUBT_SECONDS, Wait(Why.DOUBT, self.limits.interval)
