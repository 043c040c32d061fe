"""How much of a backlog a relay takes at a time: little while others write, too, for these wait behind it. Pure.

Whoever writes now and then waits until what the relay has in hand is sent and marked, and for a processor, which a
backlog takes from all others. A backlog alone is quickest in large parts.
"""

MOST = 1_000
"""Rows of one claim, of all shards together."""
LEAST = 64
"""Of one claim, two rows of each shard: fewer cost hardly less."""
FIRST = 2 * LEAST
"""Of one claim, when others have begun to write: how many take how long is not known yet."""
SEND_SECONDS = 0.1
"""For which rows of keys that have several are sent one after the other, before others are looked for."""
TURN_SECONDS = 0.02
"""For a claim, the broker's answers and the marks, while others write."""
CLAIMS = 2
"""Times of a claim that it may take to send and mark its rows, where that is longer."""
RESTS = 3
"""Times of a turn that a rest takes after it, while others write: a backlog has a quarter of the relay's time then."""
MOST_REST_SECONDS = 0.5
"""After a turn, which takes long where there is much else to do."""
OTHERS_SECONDS = 2.0
"""After which somebody who has written is not expected to write again."""


class Waves:
    """Belongs to the relay's thread."""

    def __init__(self) -> None:
        self.send_seconds = SEND_SECONDS
        """For which rows of the same keys are sent one after the other."""
        self._rows = MOST
        self._short = LEAST
        self._is_short = False
        self._others_until = self._rest_until = float("-inf")

    def heard(self, now: float) -> None:
        """Somebody has written rows.

        Args:
            now: monotonic seconds.
        """
        if now >= self._others_until:
            self._rows = FIRST
        self._others_until = now + OTHERS_SECONDS

    def begin(self, now: float) -> int:
        """Rows of the claim of a turn that begins: few in a rest, in which what has come is looked for."""
        self._is_short = now < self._rest_until
        return self._short if self._is_short else self._rows

    def turned(self, rows: int, claiming: float, sending: float, now: float) -> float:
        """Take note of a turn, and decide how many rows the next one has.

        A claim takes its time however few rows it has: where that is long a wave takes twice that, or most of the time
        would go into claims, and more be written than is sent.

        Args:
            rows: that it has claimed.
            claiming: seconds that took.
            sending: seconds that it took to send and mark them.
            now: monotonic seconds.

        Returns:
            For how many seconds to rest, unless somebody writes: some times of what the turn took, when others do. What
            somebody writes meanwhile has a turn, and then the rest goes on.
        """
        if now >= self._others_until:
            self._rows, self.send_seconds = MOST, SEND_SECONDS
            return 0.0
        self.send_seconds = TURN_SECONDS
        size = self._short if self._is_short else self._rows
        is_full = rows >= size // 2  # fewer say little of what a row takes
        if is_full:
            self._learn(rows, size, claiming, sending)
        if self._is_short:
            return max(self._rest_until - now, 0.0)
        rest = min(RESTS * (claiming + sending), MOST_REST_SECONDS) if is_full else 0.0
        self._rest_until = now + rest
        return rest

    def _learn(self, rows: int, size: int, claiming: float, sending: float) -> None:
        if sending <= 0:
            return
        # There may be a turn after the other in the rest, and always much to send.
        self._short = min(max(int(CLAIMS * claiming * rows / sending), LEAST), 2 * size, MOST)
        if not self._is_short:
            # Not more than twice or half of it at once: one turn may have waited for a processor.
            fitting = int(rows * max(TURN_SECONDS - claiming, CLAIMS * claiming) / sending)
            self._rows = min(max(fitting, size // 2, LEAST), size * 2, MOST)
