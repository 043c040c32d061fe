"""Handlings with a beginning and an end: whether two of a key ever overlapped or came in the wrong order."""

import json
import random
import time
from collections.abc import Callable

from terms import KEYS

SEED = 11
OPTIONS = {
    "pause": {"type": float, "default": 0.0, "help": "seconds that each handling takes; 0 for 0 to 5 ms, seeded"},
    "concurrency": {"type": int, "default": 100},
}


class Spans:
    """Notes handlings. Any thread may call any method.

    Args:
        count: how many end the measurement.
        pause: seconds of each handling; 0 for 0 to 5 ms, the same for an event in every run.
        done: called when the last has ended.
    """

    def __init__(self, count: int, pause: float, done: Callable[[], None] = lambda: None) -> None:
        dice = random.Random(SEED)  # noqa: S311 - the same times for all contestants
        self.pauses = [pause or dice.uniform(0, 0.005) for _ in range(count)]
        self.count = count
        self.done = done
        self._found: list[tuple[int, float, float]] = []
        self._cpu = 0.0
        self._cpu_seconds = 0.0

    def begin(self) -> float:
        """A handling begins: its time, for `end`."""
        if not self._cpu:
            self._cpu = time.process_time()
        return time.perf_counter()

    def end(self, number: int, began: float) -> None:
        """The handling of an event ends."""
        self._found.append((number, began, time.perf_counter()))
        if len(self._found) == self.count:
            self._cpu_seconds = time.process_time() - self._cpu
            self.done()

    def report(self, **more: object) -> None:
        """Print the result line: besides the times, inversions, overlaps and how many ran at once on average."""
        found = sorted(self._found, key=lambda span: span[1])
        inversions = overlaps = 0
        last: dict[int, tuple[int, float]] = {}
        for number, began, ended in found:
            before, until = last.get(number % KEYS, (-1, 0.0))
            inversions += number < before
            overlaps += began < until
            last[number % KEYS] = number, ended
        seconds = max(span[2] for span in found) - found[0][1]
        problems = []
        if len({span[0] for span in found}) != self.count or len(found) != self.count:
            problems.append(
                f"{len(found):,} handlings of {len({span[0] for span in found}):,} of {self.count:,} events"
            )
        line = {
            "count": self.count,
            "seconds": seconds,
            "cpu_seconds": self._cpu_seconds,
            "inversions": inversions,
            "overlaps": overlaps,
            "at_once": sum(ended - began for _, began, ended in found) / seconds,
            "problems": problems,
            **more,
        }
        print(json.dumps(line), flush=True)
