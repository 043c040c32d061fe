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
        self._read: dict[str, int] = defaultdict(int)
        self._handled: dict[tuple[str, str], list[tuple[float, int]]] = defaultdict(list)
        self._others: dict[tuple[str, str], int] = defaultdict(int)

    def read(self, label: str) -> None:
        """A record was read whose outcome is told elsewhere."""
        self._read[label] += 1

    def handled(self, label: str, outcome: str, seconds: float, count: int = 1) -> None:
        """So many records were read and have their outcome, each by a handling that took so long."""
        self._handled[label, outcome].append((seconds, count))

    def passed(self, label: str, outcome: str) -> None:
        """A record was read and has its outcome without a handling."""
        self._others[label, outcome] += 1

    def tell(self) -> None:
        """Add everything to the metrics, and begin anew."""
        for (label, outcome), seconds in self._handled.items():
            metrics.HANDLER_SECONDS.observe((self._group, label), seconds)
            self._tell(label, outcome, sum(count for _, count in seconds))
        for (label, outcome), count in self._others.items():
            self._tell(label, outcome, count)
        for label, count in self._read.items():
            metrics.EVENTS_CONSUMED.labels(self._group, label).inc(count)
        self._read.clear()
        self._handled.clear()
        self._others.clear()

    def _tell(self, label: str, outcome: str, count: int) -> None:
        metrics.EVENTS_CONSUMED.labels(self._group, label).inc(count)
        metrics.EVENTS_HANDLED.labels(self._group, label, outcome).inc(count)
