"""Helpers of the tests."""

import time
from collections.abc import Callable
from typing import TypeVar

T = TypeVar("T")


def wait_until(condition: Callable[[], T], deadline: float = 30.0, *, what: str = "", interval: float = 0.05) -> T:
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
