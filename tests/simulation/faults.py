"""What goes wrong now: switched on and off by the plan, asked by the simulated servers."""

import random
from enum import Enum, auto


class Answer(Enum):
    """How a request ends."""

    OK = auto()
    LOST = auto()  # it had no effect, and the client sees a time-out
    UNCLEAR = auto()  # it had its effect, and the client sees a time-out


class Faults:
    """The present conditions.

    Args:
        dice: all chance of a run.
    """

    def __init__(self, dice: random.Random) -> None:
        self.calm = False
        """Nothing goes wrong any more."""
        self._dice = dice
        self._bad: set[str] = set()

    def start(self, what: str) -> None:
        """Let most requests of a kind fail (`commit`, `append`, `transaction`, `admin`)."""
        self._bad.add(what)

    def stop(self, what: str) -> None:
        """Let most of them succeed again."""
        self._bad.discard(what)

    def answer(self, what: str) -> Answer:
        """How a request of a kind ends now."""
        if self.calm:
            return Answer.OK
        if self._dice.random() > (0.7 if what in self._bad else 0.015):
            return Answer.OK
        return Answer.LOST if self._dice.random() < 0.6 else Answer.UNCLEAR
