"""The turns of a process that looks for work again and again, for its health page and for the alert that none does."""

from typing import Any

from offsetzero import metrics
from offsetzero.clock import Clock


class Turns:
    """Written by the process's own thread; any thread may ask for its health.

    Args:
        process: `relay`, `scheduler` or `sweeper`: of each one should work at least, wherever it does.
        clock: measures.
        silent_seconds: without a turn it does not go on.
    """

    def __init__(self, process: str, clock: Clock, silent_seconds: float) -> None:
        self._process = process
        self._clock = clock
        self._silent_seconds = silent_seconds
        self._at = clock.monotonic()

    def turn(self) -> None:
        """It goes on: said at least as often as that it is silent would be noticed."""
        self._at = self._clock.monotonic()
        metrics.TURNED.labels(self._process).set(self._clock.now().timestamp())

    def health(self) -> tuple[bool, dict[str, Any]]:
        """Whether it goes on, and what to show."""
        silent = self._clock.monotonic() - self._at
        return silent < self._silent_seconds, {self._process: {"turned_seconds_ago": round(silent, 1)}}
