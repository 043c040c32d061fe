"""offsetzero with handlers that stand still at times: from a resumption to the first record after it."""

import statistics
import threading
import time
from typing import Any

import ours
from confluent_kafka import Consumer, Message, TopicPartition
from terms import Meter, arguments, report

from offsetzero.client_log import LOGGER, watched
from offsetzero.consumers.context import Context
from offsetzero.consumers.resources import Resources
from offsetzero.schemas.documents import DocumentUploaded

STILL, GO = 2.0, 0.5  # seconds: without room for one, the runtime pauses
args = arguments()
group = ours.group(args)
meter = Meter(args.count)
gate = threading.Event()
waits: list[float] = []


class Timed(Consumer):
    """The client, with the time from a resumption to the first record that comes after it."""

    _resumed: float | None = None

    def pause(self, partitions: list[TopicPartition]) -> None:
        super().pause(partitions)
        self._resumed = None

    def resume(self, partitions: list[TopicPartition]) -> None:
        super().resume(partitions)
        if self._resumed is None:  # the runtime resumes one partition after the other
            self._resumed = time.perf_counter()

    def poll(self, *given: Any, **named: Any) -> Message | None:
        message = super().poll(*given, **named)
        if message is not None:
            self._note([message])
        return message

    def consume(self, *given: Any, **named: Any) -> list[Message]:
        messages = super().consume(*given, **named)
        self._note(messages)
        return messages

    def _note(self, messages: list[Message]) -> None:
        if self._resumed is not None and any(message.error() is None for message in messages):
            if meter.started:  # not the resumption that comes with the assignment
                waits.append((time.perf_counter() - self._resumed) * 1000)
            self._resumed = None


class Timing(Resources):
    """The usual clients but for the consumer."""

    def consumer(self, config: Any) -> Consumer:
        return Timed(watched({**config}), logger=LOGGER)


@group.handler(DocumentUploaded)
def wait(event: DocumentUploaded, ctx: Context) -> None:
    """Stands still while the gate is shut."""
    gate.wait()
    meter.one(event.size_bytes)


def swing() -> None:
    """Open and shut the gate."""
    while not meter.finished.is_set():
        gate.set()
        time.sleep(GO)
        gate.clear()
        time.sleep(STILL)
    gate.set()


threading.Thread(target=swing, daemon=True).start()
counted = ours.run(group, args, meter, resources=Timing)
gate.set()
report(meter, of=args.of, waits=waits, p50=statistics.median(waits) if waits else None, **counted)
