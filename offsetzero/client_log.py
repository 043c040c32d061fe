"""The log lines of librdkafka: through `logging` instead of onto standard error, and few while a broker is away.

A client that cannot connect says so several times a second. Here that is one line when a broker goes away, one a
minute while it stays away, and one when it is back.
"""

import json
import logging
import re
import threading
from typing import Any

from offsetzero.clock import SYSTEM, Clock

REPEAT_SECONDS = 60.0
_STATS_MS = 2_000
_ABOUT_CONNECTIONS = frozenset({"FAIL", "ERROR", "REQTMOUT"})
_LINE = re.compile(r"(?P<kind>[A-Z0-9_]+) \[[^\]]*\] (?:\[thrd:[^ ]*\]: )?(?P<text>.*)", re.DOTALL)
_ADDRESS = re.compile(r"(?P<address>[^\s/]+:\d+)(?:/\w+)?: (?P<what>.*?)(?: \(after .*)?", re.DOTALL)


class Watch(logging.Filter):
    """Lets a client's lines pass, and thins those about brokers that are away. Any thread may log.

    Args:
        logger: says that a broker is back.
        clock: for the minute between two lines.
    """

    def __init__(self, logger: logging.Logger, clock: Clock = SYSTEM) -> None:
        super().__init__()
        self._logger = logger
        self._clock = clock
        self._lock = threading.Lock()
        self._away: dict[str, float] = {}

    def filter(self, record: logging.LogRecord) -> bool:
        """Whether the line is news; one about a broker that is away is put into plain words."""
        line = _LINE.fullmatch(record.getMessage())
        if line is None:
            return True
        kind, text = line["kind"], line["text"]
        if kind == "GETPID" and text.endswith("retrying"):  # while a new broker loads its state, again and again
            return False
        if kind not in _ABOUT_CONNECTIONS:
            return True
        place = _ADDRESS.fullmatch(text) or _ADDRESS.fullmatch(text.partition(": ")[2])
        if place is None:
            return not text.endswith("brokers are down")  # each of them has been named
        with self._lock:
            now = self._clock.monotonic()
            told = self._away.get(place["address"])
            if told is not None and now - told < REPEAT_SECONDS:
                return False
            self._away[place["address"]] = now
        does = "does" if told is None else "still does"
        record.msg, record.args = "Kafka at %s %s not answer: %s", (place["address"], does, place["what"])
        record.levelno, record.levelname = logging.WARNING, "WARNING"
        return True

    def on_stats(self, text: str) -> None:
        """Look in librdkafka's statistics whether a broker is back."""
        if not self._away:
            return
        brokers = json.loads(text).get("brokers", {}).values()
        up = {broker.get("nodename") for broker in brokers if broker.get("state") == "UP"}
        with self._lock:
            back = [address for address in self._away if address in up]
            for address in back:
                del self._away[address]
        for address in back:
            self._logger.warning("Kafka at %s answers again", address)


LOGGER = logging.getLogger("offsetzero.kafka")
"""What every client of ours gets as its `logger`."""

_watch = Watch(LOGGER)
LOGGER.addFilter(_watch)


def watched(config: dict[str, Any]) -> dict[str, Any]:
    """The configuration of a client that lives long: it also tells when a broker is back."""
    return {"statistics.interval.ms": _STATS_MS, **config, "stats_cb": _watch.on_stats}
