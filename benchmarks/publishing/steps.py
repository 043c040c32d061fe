"""What the steps of publishing an event cost: the best of many short turns, so that a busy machine matters little.

    python benchmarks/publishing/steps.py [--turns 400]

There is no broker: what is sent is given up after each turn, outside of the time.
"""

import argparse
import itertools
import os
import platform
import time
from collections.abc import Callable, Iterable
from typing import Any

import events as made
from confluent_kafka import Producer
from race import client_config

from offsetzero.producers.answers import Answers
from offsetzero.producers.delivery import Delivery
from offsetzero.producers.publisher import Publisher
from offsetzero.producers.records import build
from offsetzero.schemas.codec import Codec
from offsetzero.schemas.ids import uuid7_text
from offsetzero.settings import Settings

CHUNK = 500
NOWHERE = "127.0.0.1:1"


class Answered:
    """What the client's message tells a delivery."""

    def partition(self) -> int:
        """The partition."""
        return 3

    def offset(self) -> int:
        """The offset."""
        return 123_456

    def timestamp(self) -> tuple[int, int]:
        """Its kind, and milliseconds."""
        return 1, 1_790_000_000_000


def best(turns: int, items: list[Any], step: Callable[[Any], object], after: Callable[[], object]) -> float:
    """Microseconds of one call, in the best turn."""
    chunks: Iterable[list[Any]] = itertools.cycle([items[n : n + CHUNK] for n in range(0, len(items), CHUNK)])
    found = float("inf")
    for chunk in itertools.islice(chunks, turns):
        started = time.perf_counter()
        for item in chunk:
            step(item)
        found = min(found, time.perf_counter() - started)
        after()
    return found / CHUNK * 1e6


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n", 1)[0])
    parser.add_argument("--turns", type=int, default=400)
    turns = parser.parse_args().turns
    events = made.make(10_000)
    records = made.encode(events)
    codec = Codec()
    options = {"log_level": "0", "allow.auto.create.topics": "true"}
    publisher = Publisher(Settings(kafka={"bootstrap_servers": NOWHERE, "options": options}))
    ours = publisher._producer
    answers = Answers(Producer({**client_config(NOWHERE), "log_level": 0}))
    raw = Producer({**client_config(NOWHERE), "log_level": 0})

    def ignore(_error: Any, _message: Any) -> None:
        return

    def produce(record: Any) -> None:
        key, value, headers = record
        raw.produce("documents", value, key, headers=headers, on_delivery=ignore)

    def give_up(producer: Producer) -> Callable[[], None]:
        return lambda: (producer.purge(), producer.flush(0.0))[0]

    def nothing() -> None:
        return

    steps: list[tuple[str, list[Any], Callable[[Any], object], Callable[[], object]]] = [
        ("Publisher.publish", events, publisher.publish, give_up(ours._producer)),
        ("  build", events, lambda event: build(codec, event, {"source": made.SOURCE}), nothing),
        ("    Codec.encode", events, codec.encode, nothing),
        ("    event id, as text", events, lambda _: uuid7_text(), nothing),
        ("    key", events, lambda event: event.key, nothing),
        ("  produce() of the client", records, produce, give_up(raw)),
        ("Delivery and its answer", events, lambda _: Delivery("t", answers).acknowledge(None, Answered()), nothing),
    ]
    print(f"µs an event; {os.cpu_count()} cores, load {os.getloadavg()[0]:.1f}, Python {platform.python_version()}")
    for name, items, step, after in steps:
        print(f"{name:30}{best(turns, items, step, after):6.2f}", flush=True)
    publisher.close(0)
    answers.stop()


if __name__ == "__main__":
    main()
