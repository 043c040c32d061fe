"""Helpers of the tests."""

import os
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from typing import TypeVar

import pytest
from hypothesis import settings

T = TypeVar("T")
IS_NIGHT = os.environ.get("OZ_TEST_PROFILE") == "nightly"
IS_TIMED = IS_NIGHT or "OZ_TEST_TIMES" in os.environ
PATIENCE = 60.0
"""Seconds that a test waits for what must come: more than a machine that is busy with other things may take."""
AT_NIGHT = pytest.mark.skipif(not IS_NIGHT, reason="one of its kind runs by day, all of them at night: make nightly")


@contextmanager
def at_work(run: Callable[[threading.Event], object], name: str) -> Iterator[None]:
    """A process of ours works in a thread of this one, until the block ends; `run` works until its event is set."""
    stop = threading.Event()
    thread = threading.Thread(target=run, args=(stop,), name=name)
    thread.start()
    try:
        yield
    finally:
        stop.set()
        thread.join(60)
        assert not thread.is_alive()


def wait_until(condition: Callable[[], T], deadline: float = PATIENCE, *, what: str = "", interval: float = 0.05) -> T:
    """Call `condition` until its answer is true, and return that answer.

    Args:
        condition: looked at again and again; what it raises ends the wait.
        deadline: seconds after which the wait fails.
        what: what was waited for, for the failure's message.
        interval: seconds between two looks.

    Raises:
        AssertionError: the answer was not true in time.
    """
    end = time.monotonic() + deadline
    while True:
        answer = condition()
        if answer:
            return answer
        if time.monotonic() > end:
            subject = what or getattr(condition, "__name__", "the condition")
            raise AssertionError(f"not within {deadline:g} s: {subject} (last answer: {answer!r})")
        time.sleep(interval)


def passes(seconds: float) -> None:
    """Let real time pass, where something has to last: never in order to wait for what must come."""
    end = time.monotonic() + seconds
    wait_until(lambda: time.monotonic() >= end, seconds + PATIENCE, what=f"{seconds:g} s")


def within(most: float, took: float, what: str) -> None:
    """Say how long something took; that it may take so long at most is looked at where nothing else is at work.

    A test that does so has the mark `timed`, for `make times`. Beside other tests it has to come at all.

    Args:
        most: seconds.
        took: seconds.
        what: took that long.
    """
    print(f"{what}: {took:.2f} s, of {most:g} s at most")
    assert took <= most or not IS_TIMED, f"{what}: {took:.2f} s"


def machine(steps: int = 40) -> settings:
    """Settings of a state machine: 200 examples, and 10,000 in the profile `nightly` (`make nightly-properties`).

    Args:
        steps: the most rules in one example.
    """
    return settings(max_examples=max(200, settings().max_examples), stateful_step_count=steps, deadline=None)


class ManualClock:
    """A clock that moves only when told: every test of due times runs in no time."""

    def __init__(self, start: datetime = datetime(2025, 1, 1, tzinfo=UTC)) -> None:
        self._now = start
        self._monotonic = 1000.0

    def now(self) -> datetime:
        return self._now

    def now_ms(self) -> int:
        return round(self._now.timestamp() * 1000)

    def monotonic(self) -> float:
        return self._monotonic

    def wait(self, condition: threading.Condition, until: Callable[[], object], seconds: float | None = None) -> bool:
        """As the machine's own clock; time that was waited for in vain has passed."""
        came = bool(condition.wait_for(until, seconds))
        if not came and seconds is not None:
            self.advance(seconds)
        return came

    def advance(self, seconds: float) -> None:
        """Let time pass."""
        self._now += timedelta(seconds=seconds)
        self._monotonic += seconds

    def step(self, seconds: float) -> None:
        """Set the wall clock forward or back, as an administrator or NTP does."""
        self._now += timedelta(seconds=seconds)
