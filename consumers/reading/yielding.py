"""How many records of the lane for backfill may be handled, while a machine has more to do than it can. Pure.

Fewer at once, down to one. One after the other still keeps two cores busy, with the servers' part of it: while live
traffic comes, too, there are pauses besides, so that it finds a processor that is free.

The polling thread waits for short times, and sees how late it gets a processor and the interpreter then: so late is
what is urgent, too, which needs both several times until it is begun.
"""

LATE_SECONDS = 0.005
"""After the end of a wait: more than a machine with time to spare ever takes."""
ROUND_SECONDS = 1.0
ROUND_WAITS = 20
"""At least. A member that is seldom without records has longer rounds: one late wait among three says nothing."""
MANY, FEW = 0.2, 0.05
"""Shares of the waits of a round that end late: where there is too much to do, and where there is time to spare."""
CALM_ROUNDS = 5
"""In a row, before one more may be handled at once."""
PACES = (0.025, 0.05, 0.1)
"""Seconds from the beginning of a record to that of the next one at least, where one at a time is too much."""
LIVE_SECONDS = 5.0
"""For which a record of live traffic is taken as a sign of more."""


class Yielding:
    """Belongs to the polling thread.

    Args:
        most: records of that lane that may be handled at once, when there is nothing else to do.
        now: monotonic seconds.
    """

    def __init__(self, most: int, now: float) -> None:
        self.at_once = self._most = most
        """One at least, so that a backfill comes to its end."""
        self._slower = 0  # how many of `PACES` it is down
        self._round = now + ROUND_SECONDS
        self._waits = self._late = self._calm = 0
        self._live_until = self._next = float("-inf")

    def waited(self, late: float, now: float) -> None:
        """Take note of a wait.

        Args:
            late: seconds between its time and its end.
            now: monotonic seconds.
        """
        self._waits += 1
        self._late += late > LATE_SECONDS
        if now >= self._round and self._waits >= ROUND_WAITS:
            share = self._late / self._waits
            self._round = now + ROUND_SECONDS
            self._waits = self._late = 0
            self._decide(share)

    def met(self, now: float) -> None:
        """Take note of a record of live traffic."""
        self._live_until = now + LIVE_SECONDS

    def pause(self, now: float) -> float | None:
        """Seconds until the next record may begin; 0 once for each; None when any may for which there is a place."""
        if not self._slower or now >= self._live_until:
            return None
        if now < self._next:
            return self._next - now
        self._next = now + PACES[self._slower - 1]
        return 0.0

    def _decide(self, share: float) -> None:
        self._calm = self._calm + 1 if share <= FEW else 0
        if share >= MANY:
            if self.at_once > 1:
                self.at_once -= 1
            else:
                self._slower = min(self._slower + 1, len(PACES))
        elif self._calm >= CALM_ROUNDS and (self._slower or self.at_once < self._most):
            self._calm = 0
            if self._slower:
                self._slower -= 1
            else:
                self.at_once += 1
