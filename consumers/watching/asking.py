"""Questions of the watch to systems that may not answer: each in a thread that lives for it, at most one at a time."""

import threading
from collections.abc import Callable
from typing import Generic, TypeVar

from offsetzero.clock import Clock
from offsetzero.consumers.resources import Spawn

WAITS_SECONDS = 2.0  # for which a record waits before the database is asked
ASK_SECONDS = 5.0  # for an answer
PAUSE_SECONDS = 2.0  # between two questions

A = TypeVar("A")


class Asker(Generic[A]):
    """Asks for the polling thread, which must not wait.

    Args:
        spawn: makes the thread.
        clock: for pauses.
    """

    def __init__(self, spawn: Spawn, clock: Clock) -> None:
        self._spawn = spawn
        self._clock = clock
        self._lock = threading.Lock()
        self._answer: A | None = None
        self._busy = False
        self._again_at = 0.0

    def ask(self, question: Callable[[], A], pause: float) -> None:
        """Ask, unless a question is on its way, or the last one was less than `pause` seconds ago.

        Args:
            question: raises nothing.
            pause: seconds.
        """
        now = self._clock.monotonic()
        with self._lock:
            if self._busy or now < self._again_at:
                return
            self._busy = True
            self._again_at = now + pause

        def run() -> None:
            answer = question()
            with self._lock:
                self._answer, self._busy = answer, False

        self._spawn(run, "watch").start()

    def answer(self) -> A | None:
        """What came since the last call."""
        with self._lock:
            answer, self._answer = self._answer, None
            return answer


class DatabasePulse:
    """Whether the group's database answers; asked while records wait, since that may be why. Of the polling thread, but
    for `told`.

    Connections that are open say nothing: to one whose server stands still every statement waits for ever, for its
    machine goes on to acknowledge what it is sent.

    Args:
        ask: has the database answer a new connection within some seconds.
        spawn: makes threads.
        clock: for how long.
    """

    def __init__(self, ask: Callable[[float], None], spawn: Spawn, clock: Clock) -> None:
        self._ask = ask
        self._clock = clock
        self._asker = Asker[str](spawn, clock)
        self._away: tuple[float, str] | None = None

    def turn(self, waits: float) -> None:
        """Look at an answer, and ask once more if need be.

        Args:
            waits: seconds for which a record has been the lowest that is not done.
        """
        if (error := self._asker.answer()) is not None:
            since = self._away[0] if self._away is not None else self._clock.monotonic() - ASK_SECONDS
            self._away = (since, error) if error else None
        if waits > WAITS_SECONDS or self._away is not None:
            self._asker.ask(self._question, PAUSE_SECONDS)

    def told(self) -> list[str]:
        """A sentence, when it does not answer; any thread may ask."""
        if (away := self._away) is None:
            return []
        return [f"the database has not answered for {self._clock.monotonic() - away[0]:.0f} s: {away[1]}"]

    def _question(self) -> str:
        try:
            self._ask(ASK_SECONDS)
        except Exception as error:  # whatever it is: for the group it is away
            return str(error) or type(error).__name__
        return ""
