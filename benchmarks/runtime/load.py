"""A steady load, some windows of which hold poison: events carry the time at which they were published.

    python load.py BOOTSTRAP TOPIC RATE WINDOW_SECONDS WINDOWS

Every second window, the keys below `BAD` get values that are cut off. The number in an event is the monotonic time
in microseconds (one clock for all processes) times 1,000 plus the number of its key.
"""

import sys
import time

import topic
from confluent_kafka import KafkaError
from contestants.terms import KEYS

BAD = 10
"""Of 1,000 keys: 1 % of the events."""
CUT = 40
"""Bytes taken off the end of a poisoned value."""


def is_poison(number: int, rate: int, window: float) -> bool:
    """Whether an event is poison."""
    return int(number / (rate * window)) % 2 == 1 and number % KEYS < BAD


def publish(bootstrap: str, name: str, rate: int, window: float, windows: int) -> None:
    """Publish all of it, each event at its time."""
    events, client = topic.Events(), topic.producer(bootstrap, linger_ms=1)
    refused: list[KafkaError] = []
    started = time.perf_counter()
    for number in range(round(rate * window * windows)):
        while (ahead := started + number / rate - time.perf_counter()) > 0:
            client.poll(0)
            time.sleep(min(ahead, 0.001))
        carried = time.monotonic_ns() // 1000 * KEYS + number % KEYS
        key, value, headers = events.record(number, carried)
        if is_poison(number, rate, window):
            value = value[:-CUT]
        topic.produce(client, name, (key, value, headers), refused)
    topic.flush(client, refused)


if __name__ == "__main__":
    _, bootstrap, name, rate, window, windows = sys.argv
    publish(bootstrap, name, int(rate), float(window), int(windows))
