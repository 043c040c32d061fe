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
ROUND_MOST_SECONDS = 10.0
"""Of a round, however few waits it had: a member that is never without records, and keeps up, need not give way."""
MANY, FEW = 0.1, 0.03
"""Shares of the waits of a round that end late: where there is too much to do, and where there is time to spare."""
CALM_ROUNDS = 3
"""In a row, before backfill has one step more, once there was too much to do; before that one is enough."""
PACES = (0.2, 0.1, 0.05, 0.025)
"""Seconds from the beginning of a record to that of the next one at least, where one at a time is too much."""
BEGIN = 0.1
"""The pace at which backfill begins that comes beside live traffic: there is no time to find out what is too much."""
LIVE_SECONDS = 5.0
"""For which a record of live traffic is taken as a sign of more; and one of backfill."""


class Yielding:
    """Belongs to the polling thread.

    Args:
        most: records of that lane that may be handled at once, when there is nothing else to do.
        now: monotonic seconds.
    """

    def __init__(self, most: int, now: float) -> None:
        counts = [*(1 << power for power in range((most - 1).bit_length())), most]  # 1, 2, 4, and all
        self._steps = [*((1, pace) for pace in PACES), *((count, 0.0) for count in counts)]
        self._begin()
        self._round = now + ROUND_SECONDS
        self._waits = self._late = 0
        self._live_until = self._bulk_until = self._next = float("-inf")

    def _begin(self) -> None:
        self._step = next((at for at, (_, pace) in enumerate(self._steps) if pace <= BEGIN), 0)
        self._calm, self._patience = 0, 1

    @property
    def at_once(self) -> int:
        """Records of that lane that may be handled at once: one at least, so that a backfill comes to its end."""
        return self._steps[self._step][0]

    def waited(self, late: float, now: float) -> None:
        """Take note of a wait.

        Args:
            late: seconds between its time and its end.
            now: monotonic seconds.
        """
        self._waits += 1
        self._late += late > LATE_SECONDS
        if now >= self._round and self._waits >= ROUND_WAITS:
            self._end_round(now)

    def met(self, now: float, *, bulk: bool) -> None:
        """Take note that there are records of backfill in flight, or that some of live traffic have come."""
        if not bulk:
            self._live_until = now + LIVE_SECONDS
            return
        if now >= self._bulk_until:
            self._begin()
        self._bulk_until = now + LIVE_SECONDS

    def pause(self, now: float) -> float | None:
        """Seconds until the next record may begin; 0 once for each; None when any may for which there is a place."""
        if now >= self._round - ROUND_SECONDS + ROUND_MOST_SECONDS:
            self._end_round(now)
        pace = self._steps[self._step][1]
        if not pace or now >= self._live_until:
            return None
        if now < self._next:
            return self._next - now
        self._next = now + pace
        return 0.0

    def _end_round(self, now: float) -> None:
        share = self._late / self._waits if self._waits else 0.0
        self._round = now + ROUND_SECONDS
        self._waits = self._late = 0
        self._decide(share)

    def _decide(self, share: float) -> None:
        if share >= MANY:
            self._step, self._calm, self._patience = max(self._step - 1, 0), 0, CALM_ROUNDS
        elif share > FEW:
            self._calm = 0
        elif (calm := self._calm + 1) < self._patience:
            self._calm = calm
        else:
            self._step, self._calm = min(self._step + 1, len(self._steps) - 1), 0
