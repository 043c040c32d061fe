"""Event ids: UUID version 7, in order within one process (RFC 9562, section 6.2, method 1)."""

import hashlib
import os
import threading
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from functools import partial
from uuid import UUID

from pydantic_core import SchemaSerializer

from offsetzero.clock import SYSTEM, Clock
from offsetzero.errors import InvalidEvent

uuid_text: Callable[[UUID], str] = partial(SchemaSerializer({"type": "uuid"}).to_python, mode="json")
"""What `str` makes of a UUID, in a quarter of the time."""
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_COUNTER_BITS = 42
_COUNTER_START = (1 << (_COUNTER_BITS - 1)) - 1  # the top bit starts as 0: room to count within a millisecond
_COUNTER_MAX = (1 << _COUNTER_BITS) - 1
_LOW_BITS = 30
_LOW, _VARIANT = (1 << _LOW_BITS) - 1, 0b10 << _LOW_BITS
_TAILS = 256


class Uuid7Source:
    """Makes UUIDs of version 7, each greater than the one before, also when the clock steps back.

    48 bits of milliseconds, a counter of 42 bits that starts anew at random in each, 32 random bits.
    Two processes, also a parent and its fork, do not share the random bits. Safe for many threads.
    """

    def __init__(self, clock: Clock = SYSTEM) -> None:
        self._clock = clock
        self.begin()

    def begin(self) -> None:
        """Begin anew, as a child must: it has random bits of its parent, and a lock that a thread there may hold."""
        self._lock = threading.Lock()
        self._millis = -1
        self._counter = 0
        self._head = ""  # the text of what stands before the counter's low bits
        self._tails: list[str] = []

    def next(self) -> UUID:
        """The next id."""
        return UUID(self.text())

    def text(self) -> str:
        """The next id, as text: made of what it shares with others, in a third of the time."""
        with self._lock:
            now = self._clock.now_ms()
            if now > self._millis:
                self._restart(now)
            else:
                self._counter += 1
                if not self._counter & _LOW:
                    self._carry()
            if not self._tails:
                random = os.urandom(_TAILS * 4).hex()
                self._tails = [random[at : at + 8] for at in range(0, len(random), 8)]
            low = f"{self._counter & _LOW | _VARIANT:x}"
            return f"{self._head}{low[:4]}-{low[4:]}{self._tails.pop()}"

    def _restart(self, millis: int) -> None:
        self._millis = millis
        self._counter = int.from_bytes(os.urandom(6)) & _COUNTER_START
        self._carry()

    def _carry(self) -> None:
        """The head has changed."""
        if self._counter > _COUNTER_MAX:
            self._restart(self._millis + 1)
        else:
            head = f"{self._millis:012x}7{self._counter >> _LOW_BITS:03x}"
            self._head = f"{head[:8]}-{head[8:12]}-{head[12:]}-"


_process = Uuid7Source()
os.register_at_fork(after_in_child=_process.begin)
uuid7 = _process.next
uuid7_text = _process.text


def uuid7_of(at: datetime, *parts: bytes) -> UUID:
    """The id of what follows from a time and some names: whoever makes it, whenever, makes the same one.

    Args:
        at: aware; the id says it to the millisecond (see `time_of`).
        parts: what tells it from others of that time.
    """
    micros = (at - _EPOCH) // timedelta(microseconds=1)
    digest = hashlib.sha256(b"".join(len(part).to_bytes(4) + part for part in (str(micros).encode(), *parts))).digest()
    random = int.from_bytes(digest[:10]) & ((1 << 74) - 1)
    high, low = random >> 62, random & ((1 << 62) - 1)
    return UUID(int=(micros // 1000) << 80 | 0x7 << 76 | high << 64 | 0b10 << 62 | low)


def first_of(at: datetime) -> UUID:
    """What no id is less than that is made at a time, or later: rows with such ids are found by them.

    Args:
        at: aware; ids say it to the millisecond.
    """
    return UUID(int=(at - _EPOCH) // timedelta(milliseconds=1) << 80)


def time_of(event_id: UUID) -> datetime:
    """When an id was made, to the millisecond, in UTC.

    Raises:
        InvalidEvent: the id is not a UUID of version 7 and says nothing about time.
    """
    if event_id.version != 7:
        raise InvalidEvent(f"{event_id} is not a UUID of version 7, so no time follows from it")
    return _EPOCH + timedelta(milliseconds=event_id.int >> 80)
