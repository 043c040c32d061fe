"""What every contestant keeps to: the same few arguments, a meter of what its handler got, one JSON line at the end.

It runs in the environment of each contestant, so it needs the standard library and fastavro only.
"""

import argparse
import itertools
import json
import sys
import threading
import time
from collections.abc import Callable, Iterable, Sequence
from io import BytesIO
from pathlib import Path
from typing import Any

from fastavro import parse_schema, schemaless_reader

KEYS = 1_000
"""Event number n belongs to key n modulo this."""
BATCH = 500
HEADER = 10
"""Bytes of an Avro single-object header: the marker and the fingerprint."""
SCHEMA = Path(__file__).parents[3] / "schemas/contracts/document.uploaded/v2.avsc"
NUMBER = "size_bytes"
"""The field that carries the number of the event, from 0."""

_schema = parse_schema(json.loads(SCHEMA.read_text()))


def stamped(sent_us: int, key: int, fails: int = 0) -> int:
    """What an event of a steady load carries as its number.

    Args:
        sent_us: the monotonic time (one clock for all processes) at which it was published.
        key: the number of its key.
        fails: how many attempts of it are to fail, below 10.
    """
    return (sent_us * 10 + fails) * KEYS + key


def read_stamp(number: int) -> tuple[int, int, int]:
    """The arguments of `stamped`."""
    rest, key = divmod(number, KEYS)
    sent_us, fails = divmod(rest, 10)
    return sent_us, key, fails


def arguments(**more: dict[str, Any]) -> argparse.Namespace:
    """The command line of a contestant.

    Args:
        more: options of this contestant alone, by name, as keywords of `add_argument`.
    """
    parser = argparse.ArgumentParser()
    parser.add_argument("--bootstrap", required=True)
    parser.add_argument("--topic", required=True)
    parser.add_argument("--group", required=True)
    parser.add_argument("--count", type=int, required=True, help="events to handle, then stop")
    parser.add_argument("--of", type=int, required=True, help="events in the topic")
    for name, keywords in more.items():
        parser.add_argument(f"--{name}", **keywords)
    return parser.parse_args()


def decode(value: bytes) -> Any:
    """The fields of an event, as fastavro reads them with logical types."""
    source = BytesIO(value)
    source.seek(HEADER)
    return schemaless_reader(source, _schema, None)


class Meter:
    """Counts what a handler gets, and the time from the first event to the last. Any thread may call any method.

    Args:
        count: how many events end the measurement.
        done: called when the last was handled, by the thread that handled it.
    """

    def __init__(self, count: int, done: Callable[[], None] = lambda: None) -> None:
        self.count = count
        self.numbers: list[int] = []
        self.finished = threading.Event()
        self.started = self.ended = self.cpu_seconds = 0.0
        self.done = done
        self._cpu = 0.0
        self._lock = threading.Lock()
        self._ticks = itertools.count(1)
        self._unread = 0

    def one(self, number: int) -> None:
        """An event of this number was handled."""
        numbers = self.numbers
        if not numbers:
            self._start()
        numbers.append(number)
        if len(numbers) == self.count:
            self._finish()

    def many(self, numbers: list[int]) -> None:
        """A batch was handled."""
        with self._lock:
            before = len(self.numbers)
            if not before:
                self._start()
            self.numbers += numbers
        if before < self.count <= before + len(numbers):
            self._finish()

    def tick(self) -> None:
        """An event was handled of which nobody read a field."""
        nth = next(self._ticks)
        if nth == 1:
            self._start()
        elif nth >= self.count:
            self._unread = nth
            if nth == self.count:
                self._finish()

    def ticks(self, length: int) -> None:
        """A batch was handled of which nobody read a field."""
        with self._lock:
            before = self._unread
            if not before:
                self._start()
            self._unread += length
        if before < self.count <= before + length:
            self._finish()

    def _start(self) -> None:
        self.started, self._cpu = time.perf_counter(), time.process_time()

    def _finish(self) -> None:
        self.ended, self.cpu_seconds = time.perf_counter(), time.process_time() - self._cpu
        self.finished.set()
        self.done()

    @property
    def handled(self) -> int:
        """How many events were handled."""
        return len(self.numbers) or self._unread


def inversions(numbers: Iterable[int]) -> int:
    """How often an event came after a later one of its key."""
    last: dict[int, int] = {}
    found = 0
    for number in numbers:
        key = number % KEYS
        found += last.get(key, -1) > number
        last[key] = max(number, last.get(key, -1))
    return found


def problems(meter: Meter, *, of: int, ordered: bool) -> list[str]:
    """What was wrong with what a contestant handled.

    Args:
        meter: after the run.
        of: how many events the topic holds, numbered from 0.
        ordered: whether the contestant claims the order of each key.
    """
    found = []
    if not meter.finished.is_set():
        return [f"{meter.handled:,} of {meter.count:,} events handled"]
    if numbers := meter.numbers:
        distinct = len(set(numbers))
        if distinct != len(numbers):
            found.append(f"{len(numbers) - distinct:,} events handled twice")
        if min(numbers) < 0 or max(numbers) >= of:
            found.append("an event that was never published")
        if ordered and (wrong := inversions(numbers)):
            found.append(f"{wrong:,} inversions")
    elif meter.count == of and meter.handled != of:
        found.append(f"{meter.handled:,} events handled, {of:,} published")
    return found


def report(meter: Meter, *, of: int, ordered: bool = True, wrong: Sequence[str] = (), **more: object) -> None:
    """Print the result line; `wrong` are problems that the contestant found itself."""
    line = {
        "count": meter.count,
        "seconds": meter.ended - meter.started,
        "cpu_seconds": meter.cpu_seconds,
        "problems": [*problems(meter, of=of, ordered=ordered), *wrong],
        **more,
    }
    print(json.dumps(line), flush=True)
    sys.stdout.flush()
