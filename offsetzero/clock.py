"""The only source of time: wall time and monotonic time are kept apart."""

import time
from datetime import UTC, datetime
from typing import Protocol


class Clock(Protocol):
    """Wall time for what is written down, monotonic time for what is waited for."""

    def now(self) -> datetime:
        """The wall time, aware, in UTC. It may step backwards."""
        ...

    def now_ms(self) -> int:
        """The wall time in milliseconds since 1970-01-01 UTC: the unit of Kafka's timestamps."""
        ...

    def monotonic(self) -> float:
        """Seconds since an arbitrary start. It never steps."""
        ...


class SystemClock:
    """The clocks of this machine."""

    def now(self) -> datetime:
        return datetime.now(UTC)

    def now_ms(self) -> int:
        return time.time_ns() // 1_000_000

    def monotonic(self) -> float:
        return time.monotonic()


SYSTEM: Clock = SystemClock()
