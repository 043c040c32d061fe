"""When a provider is down, and whose fault a failed call is: pure (the table of design section 7).

Half of the last 20 calls failed, or one got 401: the breaker is open, nobody calls but one probe at an interval, and
the first that is answered closes it. A 403 may be about one record: another record's call, begun after it, decides.
Until it is known whose fault a failure is, its record waits for a moment; it consumes an attempt only for its own.
"""

from dataclasses import dataclass, field, replace
from enum import Enum, StrEnum, auto

WINDOW = 20
"""Calls that are looked at."""
HALF = WINDOW // 2
DOUBT_SECONDS = 5.0
"""For which a failed call waits for what others get; then it is taken for its own."""
ALONE_SECONDS = 60.0
"""For which a 403 is asked about again while no other record calls; then it is taken for that record's own."""
KEPT_SECONDS, KEPT = 600.0, 100  # for which a 403 is remembered, and how many are
UNAUTHORISED, FORBIDDEN, FAILING = "provider-401", "provider-403", "provider-failing"
"""Why a breaker is open; also what a handler called it in `ProviderDown`."""


class Answer(StrEnum):
    """What a call came to, as far as the provider is concerned."""

    SERVED = "served"
    ANSWERED = "answered"  # refused for what was asked: the provider is well
    FAILED = "failed"
    THROTTLED = "throttled"
    DOWN = "down"  # 401, or the handler says so
    FORBIDDEN = "forbidden"
    UNKNOWN = "unknown"  # it ended for a reason that says nothing about the provider


class Fault(Enum):
    """Whose fault a failure is."""

    OWN = auto()
    PROVIDERS = auto()
    UNDECIDED = auto()


@dataclass(frozen=True, slots=True)
class Caller:
    """Who calls: a record, by a name that is the same in every attempt, and its tenant, empty for none."""

    record: str
    tenant: str = ""


@dataclass(frozen=True, slots=True)
class Call:
    """A call that has ended: its permit, who called, when it began."""

    permit: str
    caller: Caller
    begun: float


@dataclass(frozen=True, slots=True)
class Refusal:
    """A record's first 403."""

    record: str
    tenant: str
    at: float


@dataclass(frozen=True, slots=True)
class Breaker:
    """As it is at one moment; times are seconds of one clock.

    Attributes:
        recent: of the last calls, what they came to and their tenant; the newest is the last.
        cause: why it is open; empty while it is closed.
        opened_at, closed_at: when that last happened.
        probe_at: when the next call may try whether the provider is well.
        probe: the permit of the call that does, empty for none.
        served: when the newest served call had begun.
        answered_at: when a call was last answered.
        refusals: records that got 403, the newest is the last.
    """

    recent: tuple[tuple[str, str], ...] = ()
    cause: str = ""
    opened_at: float = 0.0
    closed_at: float = 0.0
    probe_at: float = 0.0
    probe: str = ""
    served: float = 0.0
    answered_at: float = 0.0
    refusals: tuple[Refusal, ...] = field(default=())

    def begin(
        self, now: float, permit: str, caller: Caller, interval: float, *, probing: bool
    ) -> "tuple[Breaker, float]":
        """May a call begin?

        Args:
            now: the moment.
            permit: of the call, if it may.
            caller: who asks.
            interval: seconds between two probes.
            probing: whether the call that probes still lives.

        Returns:
            The breaker, with this call as its probe if it is one, and 0; or the seconds to wait before asking again.
        """
        if not self.cause:
            return self, 0.0
        if wait := self.wait(now, interval, probing=probing):
            return self, wait
        # What got 403 lets others go first: their answer tells more.
        if any(one.record == caller.record for one in self.refusals) and now < self.probe_at + interval / 2:
            return self, self.probe_at + interval / 2 - now
        return replace(self, probe=permit), 0.0

    def wait(self, now: float, interval: float, *, probing: bool) -> float:
        """Seconds for which nobody may begin a call; 0 when one may."""
        if not self.cause:
            return 0.0
        if self.probe and probing:
            return min(1.0, interval)
        return max(0.0, self.probe_at - now)

    def end(self, now: float, call: Call, answer: Answer, interval: float, cause: str = UNAUTHORISED) -> "Breaker":
        """A call has ended.

        Args:
            now: the moment.
            call: which.
            answer: what it came to.
            interval: seconds between two probes.
            cause: for `Answer.DOWN`, why.
        """
        new = self._remember(now, call, answer)
        if self.cause:
            return new._end_open(now, call, answer, interval)
        if answer is Answer.DOWN:
            return new._open(now, cause, interval)
        if answer is Answer.FORBIDDEN and new._is_everybodys(call):
            return new._open(now, FORBIDDEN, interval)
        if answer is Answer.FAILED and sum(mark == Answer.FAILED for mark, _ in new.recent) >= HALF:
            return new._open(now, FAILING, interval)
        return new

    def not_ahead_of(self, now: float, interval: float) -> "Breaker":
        """The same by a clock that was set back: nothing has happened later than now."""
        return replace(
            self,
            opened_at=min(self.opened_at, now),
            closed_at=min(self.closed_at, now),
            probe_at=min(self.probe_at, now + interval),
            served=min(self.served, now),
            answered_at=min(self.answered_at, now),
        )

    def fault(self, now: float, call: Call, answer: Answer, ended: float) -> Fault:
        """Whose fault a failed call is.

        Args:
            now: the moment.
            call: which.
            answer: what it came to.
            ended: when it had ended.
        """
        if self.cause or answer is Answer.DOWN or (answer is Answer.FAILED and call.begun < self.closed_at):
            return Fault.PROVIDERS
        if answer is Answer.FAILED:
            decided = self.answered_at > ended or now - ended >= DOUBT_SECONDS
        else:
            first = next((one.at for one in self.refusals if one.record == call.caller.record), ended)
            decided = self.served > first or now - first >= ALONE_SECONDS
        return Fault.OWN if decided else Fault.UNDECIDED

    def _end_open(self, now: float, call: Call, answer: Answer, interval: float) -> "Breaker":
        if call.permit != self.probe:
            return self  # it had begun before: says nothing new
        well = answer in (Answer.SERVED, Answer.ANSWERED)
        well = well or (answer is Answer.THROTTLED and self.cause == FAILING)
        if well:
            return replace(self, cause="", probe="", recent=(), closed_at=now)
        return replace(self, probe="", probe_at=now + interval)

    def _open(self, now: float, cause: str, interval: float) -> "Breaker":
        return replace(self, cause=cause, opened_at=now, probe_at=now + interval, probe="")

    def _remember(self, now: float, call: Call, answer: Answer) -> "Breaker":
        recent, served, answered_at = self.recent, self.served, self.answered_at
        refusals = tuple(one for one in self.refusals if 0 <= now - one.at < KEPT_SECONDS)
        if answer in (Answer.SERVED, Answer.ANSWERED):
            answered_at = now
        if answer is Answer.SERVED:
            served = max(served, call.begun)
            refusals = tuple(one for one in refusals if one.record != call.caller.record)
        late = answer is Answer.FAILED and call.begun < self.closed_at
        if answer is not Answer.UNKNOWN and not self.cause and not late:
            recent = (*recent, (answer.value, call.caller.tenant))[-WINDOW:]
        if answer is Answer.FORBIDDEN and all(one.record != call.caller.record for one in refusals):
            refusals = (*refusals, Refusal(call.caller.record, call.caller.tenant, now))[-KEPT:]
        return replace(self, recent=recent, served=served, answered_at=answered_at, refusals=refusals)

    def _is_everybodys(self, call: Call) -> bool:
        """Whether a 403 confirms that of another record: begun after it, with nobody served in between.

        Two records of one tenant may share their fault: where others were served of late, one of those has to say so.
        """
        before = [
            one
            for one in self.refusals
            if one.record != call.caller.record and self.served <= one.at < call.begun  # not since it got its 403
        ]
        if any(one.tenant != call.caller.tenant for one in before):
            return True
        others = any(mark == Answer.SERVED and tenant != call.caller.tenant for mark, tenant in self.recent)
        return bool(before) and not others
