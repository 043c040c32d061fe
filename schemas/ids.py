"""Event ids: UUID version 7, in order within one process (RFC 9562, section 6.2, method 1)."""

import os
import threading
from datetime import UTC, datetime, timedelta
from uuid import UUID

from offsetzero.clock import SYSTEM, Clock
from offsetzero.errors import InvalidEvent

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_COUNTER_BITS = 42
_COUNTER_START = (1 << (_COUNTER_BITS - 1)) - 1  # the top bit starts as 0: room to count within a millisecond
_COUNTER_MAX = (1 << _COUNTER_BITS) - 1


class Uuid7Source:
    """Makes UUIDs of version 7, each greater than the one before, also when the clock steps back.

    48 bits of milliseconds, a counter of 42 bits that starts anew at random in each, 32 random bits.
    Two processes, also a parent and its fork, do not share the random bits.
    """

    def __init__(self, clock: Clock = SYSTEM) -> None:
        self._clock = clock
        self._lock = threading.Lock()
        self._millis = -1
        self._counter = 0

    def next(self) -> UUID:
        """The next id."""
        tail = int.from_bytes(os.urandom(4))
        with self._lock:
            now = self._clock.now_ms()
            if now > self._millis:
                self._restart(now)
            else:
                self._counter += 1
                if self._counter > _COUNTER_MAX:
                    self._restart(self._millis + 1)
            millis, counter = self._millis, self._counter
        value = millis << 80 | 0x7 << 76 | (counter >> 30) << 64 | 0b10 << 62 | (counter & 0x3FFFFFFF) << 32
        return UUID(int=value | tail)

    def _restart(self, millis: int) -> None:
        self._millis = millis
        self._counter = int.from_bytes(os.urandom(6)) & _COUNTER_START


_process = Uuid7Source()
uuid7 = _process.next


def time_of(event_id: UUID) -> datetime:
    """When an id was made, to the millisecond, in UTC.

    Raises:
        InvalidEvent: the id is not a UUID of version 7 and says nothing about time.
    """
    if event_id.version != 7:
        raise InvalidEvent(f"{event_id} is not a UUID of version 7, so no time follows from it")
    return _EPOCH + timedelta(milliseconds=event_id.int >> 80)
