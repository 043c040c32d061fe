"""What a worker has done since it last told: counted without locks, told to the metrics once a run."""

from collections import defaultdict

from offsetzero import metrics


class Tally:
    """Counts of one worker; not safe for several threads.

    Args:
        group: whose records are counted.
    """

    def __init__(self, group: str) -> None:
        self._group = group
        self._consumed: dict[str, int] = defaultdict(int)
        self._handled: dict[tuple[str, str], int] = defaultdict(int)
        self._seconds: dict[str, list[float]] = defaultdict(list)

    def consumed(self, label: str) -> None:
        """A record was read."""
        self._consumed[label] += 1

    def handled(self, label: str, outcome: str) -> None:
        """A record has its outcome."""
        self._handled[label, outcome] += 1

    def took(self, label: str, seconds: float) -> None:
        """A handling took so long."""
        self._seconds[label].append(seconds)

    def tell(self) -> None:
        """Add everything to the metrics, and begin anew."""
        for label, count in self._consumed.items():
            metrics.EVENTS_CONSUMED.labels(self._group, label).inc(count)
        for (label, outcome), count in self._handled.items():
            metrics.EVENTS_HANDLED.labels(self._group, label, outcome).inc(count)
        for label, seconds in self._seconds.items():
            metrics.HANDLER_SECONDS.observe((self._group, label), seconds)
        self._consumed.clear()
        self._handled.clear()
        self._seconds.clear()
