"""Lanes of the outbox whose first row was refused: how long they wait, in memory."""

import random

from offsetzero.clock import Clock

_FIRST_PAUSE, _LAST_PAUSE = 1.0, 60.0
MOST = 10_000


class Blocked:
    """Lanes, each until its next try. A restart tries all again.

    Args:
        clock: for the waits.
        dice: for jitter.
    """

    def __init__(self, clock: Clock, dice: random.Random | None = None) -> None:
        self._clock = clock
        self._dice = dice or random.Random()  # noqa: S311  # jitter, no secret
        self._until: dict[str, tuple[int, float]] = {}

    def now(self) -> list[str]:
        """The lanes that must not be tried yet."""
        moment = self._clock.monotonic()
        return [lane for lane, (_, until) in self._until.items() if until > moment]

    def refuse(self, lane: str) -> float:
        """Block a lane for a while, longer each time; returns the seconds."""
        if lane not in self._until and len(self._until) >= MOST:
            self._until.pop(next(iter(self._until)))
        tries = self._until.get(lane, (0, 0.0))[0] + 1
        pause: float = min(_FIRST_PAUSE * 2 ** min(tries - 1, 10), _LAST_PAUSE)
        pause += self._dice.uniform(0, 0.1 * pause)
        self._until[lane] = (tries, self._clock.monotonic() + pause)
        return pause

    def accept(self, lane: str) -> None:
        """Forget a lane's refusals."""
        self._until.pop(lane, None)
