"""The fate of one record on its way to the broker: to wait for, to await, or to be called back with."""

import asyncio
import threading
from collections.abc import Callable, Generator
from typing import Any, NamedTuple, TypeAlias

from confluent_kafka import KafkaError, Message

from offsetzero import logs
from offsetzero.errors import PublishError
from offsetzero.producers.answers import Answers

_log = logs.get(__name__)


class RecordMetadata(NamedTuple):
    """Where the broker put a record. `timestamp_ms` is the record's time in milliseconds since 1970."""

    topic: str
    partition: int
    offset: int
    timestamp_ms: int


Callback: TypeAlias = Callable[["Delivery"], object]


class Delivery:
    """What becomes of one record. Any thread may wait for it, and any asyncio loop await it.

    It holds as little as it can (0.3 KB): many thousands of them are under way at once, or kept until the end.
    """

    __slots__ = ("_answer", "_answers", "_callbacks", "_topic", "_waiter")

    def __init__(self, topic: str, answers: Answers) -> None:
        self._topic = topic
        self._answers = answers
        self._answer: tuple[int | None, int | None, int] | PublishError | None = None
        self._waiter: threading.Event | None = None
        self._callbacks: list[Callback] | None = None

    def done(self) -> bool:
        """Whether the broker has answered, or the record was given up."""
        return self._answer is not None

    def result(self, timeout: float | None = None) -> RecordMetadata:
        """Where the record is, once the broker has acknowledged it on all in-sync replicas.

        Args:
            timeout: seconds to wait; None waits as long as the producer tries (its delivery time-out).

        Raises:
            PublishError: the broker did not take it. It may have landed all the same when `code` is a time-out. Or a
                callback waits, which would wait for itself.
            TimeoutError: not known yet.
        """
        if self._answer is None:
            self._wait(timeout)
        answer = self._answer
        if isinstance(answer, PublishError):
            raise answer
        assert answer is not None  # noqa: S101  # waited for
        partition, offset, timestamp_ms = answer
        return RecordMetadata(self._topic, _known(partition), _known(offset), timestamp_ms)

    def add_done_callback(self, callback: Callback) -> None:
        """Call `callback(delivery)` when it is done, at once when it already is.

        Callbacks run on the producer's polling thread (or in `flush`), and must be short and not wait. What
        they raise is logged.
        """
        self._answers.no_help()
        self._call_when_done(callback)

    def __await__(self) -> Generator[Any, None, RecordMetadata]:
        if self._answer is None:
            loop = asyncio.get_running_loop()
            settled = loop.create_future()

            def settle() -> None:
                if not settled.done():
                    settled.set_result(None)

            def wake(_: "Delivery") -> None:
                try:
                    loop.call_soon_threadsafe(settle)
                except RuntimeError:  # the loop was closed: nobody waits any more
                    return

            self._call_when_done(wake)
            yield from settled.__await__()
        return self.result(0)

    def acknowledge(self, error: KafkaError | None, message: Message) -> None:
        """Called by the client with the broker's answer. The message is not kept: it holds the record's bytes."""
        if error is not None:
            self._settle(refusal(self._topic, error))
        else:
            self._settle((message.partition(), message.offset(), message.timestamp()[1]))

    def fail(self, error: PublishError) -> None:
        """Called by the producer when it gives the record up."""
        self._settle(error)

    def _settle(self, answer: tuple[int | None, int | None, int] | PublishError) -> None:
        with self._answers.lock:
            self._answer = answer
            waiter, callbacks = self._waiter, self._callbacks
        if waiter is not None:
            waiter.set()
            self._waiter = None
        if callbacks is not None:
            self._callbacks = None
            for callback in callbacks:
                self._call(callback)

    def _wait(self, timeout: float | None) -> None:
        if self._answers.inside():
            raise PublishError(f"{self._topic}: a delivery callback cannot wait for another answer")
        with self._answers.lock:
            if self._answer is not None:
                return
            if self._waiter is None:
                self._waiter = threading.Event()
            waiter = self._waiter
        if not waiter.wait(timeout):
            raise TimeoutError(f"{self._topic}: no answer of the broker within {timeout} s; it may still come")

    def _call_when_done(self, callback: Callback) -> None:
        with self._answers.lock:
            if self._answer is None:
                if self._callbacks is None:
                    self._callbacks = []
                self._callbacks.append(callback)
                return
        self._call(callback)

    def _call(self, callback: Callback) -> None:
        try:
            callback(self)
        except Exception:
            _log.exception("delivery callback failed", topic=self._topic)


def refusal(topic: str, error: KafkaError) -> PublishError:
    """The error for a record that the client or the broker refused."""
    hint = _HINTS.get(error.code(), "")
    return PublishError(f"{topic}: {error.str()}{hint}", code=error.name(), retriable=error.code() in PASSING)


PASSING = frozenset(
    {
        KafkaError._MSG_TIMED_OUT,
        KafkaError._TRANSPORT,
        KafkaError._ALL_BROKERS_DOWN,
        KafkaError._TIMED_OUT,
        KafkaError._PURGE_QUEUE,
        KafkaError._PURGE_INFLIGHT,
        KafkaError.NOT_ENOUGH_REPLICAS,
        KafkaError.NOT_ENOUGH_REPLICAS_AFTER_APPEND,
        KafkaError.REQUEST_TIMED_OUT,
    }
)
"""Codes that say nothing about the record: the same one may be taken later. The client marks none of them."""

_HINTS = {
    KafkaError._UNKNOWN_TOPIC: "; `offsetzero topics apply` makes the declared topics",
    KafkaError.UNKNOWN_TOPIC_OR_PART: "; `offsetzero topics apply` makes the declared topics",
    KafkaError.MSG_SIZE_TOO_LARGE: "; store large content elsewhere and publish its URI",
    KafkaError._MSG_TIMED_OUT: "; the broker did not answer in time, the record may have landed",
}


def _known(value: int | None) -> int:
    return -1 if value is None else value
