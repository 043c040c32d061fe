"""How many requests of a tenant are taken, by this process: the generic cell rate algorithm, one number a tenant.

In the memory of each process: a count that all of them share would be a write, with its wait for the disk, for every
read, and for every refusal of a flood.
"""

import time
from collections.abc import Callable

_EXACT = 1e-6  # seconds: sums of intervals are not exact
_FORGET = 10_000  # tenants, after which those that have been quiet are dropped


class TenantLimits:
    """Belongs to one event loop.

    Args:
        rate: requests a second, in the long run.
        burst: requests that may come at once, after a quiet time.
        monotonic: the clock, in seconds.
    """

    def __init__(self, rate: float, burst: int, monotonic: Callable[[], float] = time.monotonic) -> None:
        self._interval = 1 / rate
        self._tolerance = (burst - 1) / rate
        self._monotonic = monotonic
        self._due: dict[str, float] = {}  # when all that came would have come at the rate

    def take(self, tenant_id: str) -> float:
        """Let a request in: 0.0; or the seconds after which one is let in."""
        now = self._monotonic()
        due = max(self._due.get(tenant_id, now), now)
        if (early := due - now - self._tolerance) > _EXACT:
            return early
        if len(self._due) >= _FORGET:
            self._due = {tenant: at for tenant, at in self._due.items() if at > now}
        self._due[tenant_id] = due + self._interval
        return 0.0
