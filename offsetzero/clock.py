"""The only source of time: wall time and monotonic time are kept apart."""

import threading
import time
from collections.abc import Callable
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

    def wait(self, condition: threading.Condition, until: Callable[[], object], seconds: float | None = None) -> bool:
        """Wait on a condition that the caller holds, so that a simulation can let other threads run meanwhile.

        Args:
            condition: held; released while waiting.
            until: looked at with the condition held, each time it is notified.
            seconds: how long at most, None for as long as it takes.

        Returns:
            Whether `until` became true; false when the time ran out.
        """
        ...


class SystemClock:
    """The clocks of this machine."""

    def now(self) -> datetime:
        return datetime.now(UTC)

    def now_ms(self) -> int:
        return time.time_ns() // 1_000_000

    def monotonic(self) -> float:
        return time.monotonic()

    def wait(self, condition: threading.Condition, until: Callable[[], object], seconds: float | None = None) -> bool:
        return bool(condition.wait_for(until, seconds))


SYSTEM: Clock = SystemClock()
