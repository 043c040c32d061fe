"""What every contestant is given, and its clock. Standard library only: the peers' environment has no offsetzero."""

import gc
import itertools
import json
import pickle
import resource
import time
from collections.abc import Iterable
from pathlib import Path
from typing import Any

WARM_UP = 1_000


def client_config(broker: str) -> dict[str, Any]:
    """What Publisher gives its client, of what matters here."""
    return {
        "bootstrap.servers": broker,
        "enable.idempotence": True,
        "acks": "all",
        "compression.type": "lz4",
        "partitioner": "murmur2_random",
        "linger.ms": 0,
    }


class Race:
    """What a contestant is given, and its clock."""

    def __init__(self, broker: str, namespace: str, records: str, count: int) -> None:
        self.broker = broker
        self.namespace = namespace
        self.topic = f"{namespace}documents"
        self.count = count
        self._records = Path(records)
        self._started = self._cpu = 0.0

    def records(self) -> list[Any]:
        """Key, value and headers."""
        return pickle.loads(self._records.read_bytes())  # noqa: S301 - written by the process that started this one

    def each(self, items: list[Any]) -> Iterable[Any]:
        """So many of them as are measured; the first are taken again."""
        return itertools.islice(itertools.cycle(items), self.count)

    def start(self) -> None:
        """The time runs. What was prepared is out of the collector's way, which no contestant should pay for."""
        gc.collect()
        gc.freeze()
        self._cpu = time.process_time()
        self._started = time.perf_counter()

    def stop(self) -> None:
        """The last delivery report is here."""
        seconds = time.perf_counter() - self._started
        cpu = time.process_time() - self._cpu
        memory = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
        print(json.dumps({"rate": self.count / seconds, "cpu_us": cpu / self.count * 1e6, "memory_mib": memory}))


class Delivered:
    """A delivery callback that counts."""

    def __init__(self) -> None:
        self.count = 0

    def __call__(self, error: Any, _message: Any) -> None:
        """A record has its answer."""
        if error is not None:
            raise RuntimeError(error)
        self.count += 1
