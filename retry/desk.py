"""One provider as this process deals with it: who asks, what is not told yet, what is known. Pure; not for threads.

Times are monotonic seconds, but for those of what is known.
"""

from dataclasses import dataclass, field

from offsetzero.retry.breaker import Answer
from offsetzero.retry.protection import LEASE_SECONDS, Limits, Protection, Wait, Why
from offsetzero.retry.turn import AWAY, Asking, Ended, Lose, Permit, Turn

POLL_SECONDS = 0.1  # between looks while somebody waits for a call, or for whose fault a failure is
LOOK_SECONDS, IDLE_LOOK_SECONDS = 1.0, 10.0  # while it is down, and otherwise: for the metrics
AGAIN_SECONDS = 1.0  # after the database has not answered
SPACING_SECONDS = 0.005  # between records that were waiting: they do not all ask at one time
MAX_UNTOLD = 1_000  # calls that have ended while the database is away


@dataclass(slots=True)
class Desk:
    """As it is now.

    Attributes:
        name: the provider's.
        limits: of the provider.
        asking: who waits for a call, in the order in which they came.
        ended: calls that are not told yet.
        doubts: calls that have failed, for whose fault somebody waits.
        held: permits of calls that run, with what ends those that lose their places.
        known: what all processes know together, as last seen.
        ahead: seconds of the store's clock before the monotonic one.
        next_at: when to look again, 0 for at once.
    """

    name: str
    limits: Limits
    asking: list[Asking] = field(default_factory=list)
    ended: list[Ended] = field(default_factory=list)
    doubts: list[Ended] = field(default_factory=list)
    held: dict[str, Lose | None] = field(default_factory=dict)
    known: Protection | None = None
    ahead: float = 0.0
    next_at: float = float("inf")
    _renew_at: float = 0.0
    _slot: float = 0.0
    _passed_at: float = float("-inf")

    def begin_turn(self, now: float, *, asks: bool) -> Turn:
        """Take what is to be told and, if it `asks`, asked."""
        renewed: set[str] = set()
        if self.held and now >= self._renew_at:
            self._renew_at = now + LEASE_SECONDS / 3
            renewed = set(self.held)
        turn = Turn(self.limits, list(self.asking) if asks else [], self.ended, self.doubts, renewed)
        self.ended, self.doubts, self.next_at = [], [], float("inf")
        return turn

    def end_turn(self, now: float, turn: Turn) -> None:
        """It was decided, and kept: answer those who wait."""
        self.known, self.ahead = turn.known, turn.at - now
        for one in (*turn.doubts, *turn.ended):
            self.held.pop(one.call.permit, None)
            if one.future is not None:
                is_known, wait = turn.verdict(one)
                if is_known:
                    one.answered(wait)
                else:
                    self.doubts.append(one)
        for permit in turn.lost:
            if (lose := self.held.get(permit)) is not None:
                lose()
        for asking in turn.asking:
            self._answer(now, asking)
        rest = IDLE_LOOK_SECONDS if turn.known is None or not turn.known.breaker.cause else LOOK_SECONDS
        if self.asking or self.doubts:
            rest = min([POLL_SECONDS, *(one.wait.seconds for one in self.asking if one.wait)])
        if self.held:
            rest = min(rest, max(0.0, self._renew_at - now))
        self.next_at = min(self.next_at, now + rest)

    def forget_turn(self, now: float, turn: Turn) -> None:
        """It was not kept, the database is away: nobody waits for that."""
        for one in (*turn.doubts, *turn.ended):
            one.answered(AWAY)
        self.ended = [*turn.ended, *self.ended][-MAX_UNTOLD:]
        for asking in turn.asking:
            self.asking.remove(asking)
            asking.answered(AWAY)
        self.next_at = now + AGAIN_SECONDS

    def hold_back(self, now: float) -> Wait | None:
        """What a record that waits has to wait for still, as far as is known here; None for one that may try."""
        if self.known is None:
            return None
        if (wait := self.known.wait(now + self.ahead, self.limits)) is not None:
            return wait
        if self.known.breaker.cause:  # it may be probed: one finds out, not all
            if now - self._passed_at < LOOK_SECONDS:
                return Wait(Why.DOWN, LOOK_SECONDS)
            self._passed_at = now
        return None

    def slot(self, now: float, wait: Wait) -> float:
        """When a record that has to wait may try again: one after the other."""
        due = now + wait.seconds
        if wait.seconds > max(self.limits.interval, IDLE_LOOK_SECONDS):
            return due  # asked for by a `Retry-After`: it is no measure for others
        self._slot = max(self._slot + SPACING_SECONDS, due)
        return self._slot

    def _answer(self, now: float, asking: Asking) -> None:
        wait, call = asking.wait, asking.call
        if wait is not None and wait.why is not Why.DOWN and now + wait.seconds < asking.until:
            return  # it goes on waiting in its place
        self.asking.remove(asking)
        if call is None:
            asking.answered(wait or AWAY)
        elif asking.answered(Permit(self.name, call)):
            self._renew_at = self._renew_at if self.held else now + LEASE_SECONDS / 3
            self.held[call.permit] = asking.lose
        else:  # who asked is gone
            self.ended.append(Ended(call, Answer.UNKNOWN))
            self.next_at = 0.0
