"""How many records of the lane for backfill may be handled at once, while a machine has more to do than it can. Pure.

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


class Yielding:
    """Belongs to the polling thread.

    Args:
        most: records of that lane that may be handled at once, when there is nothing else to do.
        now: monotonic seconds.
    """

    def __init__(self, most: int, now: float) -> None:
        self.at_once = self._most = most
        self._round = now + ROUND_SECONDS
        self._waits = self._late = self._calm = 0

    def waited(self, late: float, now: float) -> int:
        """Take note of a wait.

        Args:
            late: seconds between its time and its end.
            now: monotonic seconds.

        Returns:
            How many records may be handled at once: one at least, so that a backfill comes to its end.
        """
        self._waits += 1
        self._late += late > LATE_SECONDS
        if now >= self._round and self._waits >= ROUND_WAITS:
            share = self._late / self._waits
            self._round = now + ROUND_SECONDS
            self._waits = self._late = 0
            self._decide(share)
        return self.at_once

    def _decide(self, share: float) -> None:
        self._calm = self._calm + 1 if share <= FEW else 0
        if share >= MANY:
            self.at_once = max(1, self.at_once - 1)
        elif self._calm >= CALM_ROUNDS and self.at_once < self._most:
            self.at_once += 1
            self._calm = 0
