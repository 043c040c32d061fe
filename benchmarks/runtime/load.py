"""A steady load with poison or failures in it: events carry when they were published, and how often they are to fail.

    python load.py BOOTSTRAP TOPIC RATE WINDOW_SECONDS WINDOWS poison|failing

With `poison`, in every second window, the keys below `BAD` get values that are cut off. With `failing`, some events of
the keys below `TROUBLED` are to fail once, twice or always. `terms.stamped` is what an event carries.
"""

import random
import sys
import time

import topic
from confluent_kafka import KafkaError
from contestants.terms import KEYS, stamped

BAD = 10
"""Of 1,000 keys: 1 % of the events."""
TROUBLED = 100
SHARE = 0.2
"""Of the events of these: so many fail."""
CUT = 40
"""Bytes taken off the end of a poisoned value."""
ALWAYS = 3
"""Attempts that a group with two tiers has."""


def is_poison(number: int, rate: int, window: float) -> bool:
    """Whether an event is poison."""
    return int(number / (rate * window)) % 2 == 1 and number % KEYS < BAD


def fails(number: int, rate: int, window: float) -> int:
    """How many attempts of an event are to fail; the same at each call."""
    if int(number / (rate * window)) % 2 == 0 or number % KEYS >= TROUBLED:
        return 0
    dice = random.Random(number)  # noqa: S311
    return dice.randint(1, ALWAYS) if dice.random() < SHARE else 0


def publish(bootstrap: str, name: str, rate: int, window: float, windows: int, kind: str) -> None:
    """Publish all of it, each event at its time."""
    events, client = topic.Events(), topic.producer(bootstrap, linger_ms=1)
    refused: list[KafkaError] = []
    started = time.perf_counter()
    for number in range(round(rate * window * windows)):
        while (ahead := started + number / rate - time.perf_counter()) > 0:
            client.poll(0)
            time.sleep(min(ahead, 0.001))
        failing = fails(number, rate, window) if kind == "failing" else 0
        carried = stamped(time.monotonic_ns() // 1000, number % KEYS, failing)
        key, value, headers = events.record(number, carried)
        if kind == "poison" and is_poison(number, rate, window):
            value = value[:-CUT]
        topic.produce(client, name, (key, value, headers), refused)
    topic.flush(client, refused)


if __name__ == "__main__":
    _, bootstrap, name, rate, window, windows, kind = sys.argv
    publish(bootstrap, name, int(rate), float(window), int(windows), kind)
