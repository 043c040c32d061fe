"""The fate of one record on its way to the broker: to wait for, to await, or to be called back with."""

import asyncio
import threading
from collections.abc import Callable, Generator
from typing import Any, NamedTuple, TypeAlias

from confluent_kafka import KafkaError, Message

from offsetzero import logs
from offsetzero.errors import PublishError

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

    It holds as little as it can: many thousands of them are under way at once.
    """

    __slots__ = ("_callbacks", "_error", "_lock", "_metadata", "_topic", "_waiter")

    def __init__(self, topic: str, lock: threading.Lock) -> None:
        self._topic = topic
        self._lock = lock  # shared by all deliveries of one producer, held for a few instructions
        self._metadata: Message | RecordMetadata | None = None
        self._error: PublishError | None = None
        self._waiter: threading.Event | None = None
        self._callbacks: list[Callback] | None = None

    def done(self) -> bool:
        """Whether the broker has answered, or the record was given up."""
        return self._metadata is not None or self._error is not None

    def result(self, timeout: float | None = None) -> RecordMetadata:
        """Where the record is, once the broker has acknowledged it on all in-sync replicas.

        Args:
            timeout: seconds to wait; None waits as long as the producer tries (its delivery time-out).

        Raises:
            PublishError: the broker did not take it. It may have landed all the same when `code` is a time-out.
            TimeoutError: not known yet.
        """
        if not self.done():
            self._wait(timeout)
        if self._error is not None:
            raise self._error
        found = self._metadata
        if isinstance(found, Message):
            found = self._metadata = RecordMetadata(
                found.topic() or self._topic,
                _known(found.partition()),
                _known(found.offset()),
                found.timestamp()[1],
            )
        assert found is not None  # noqa: S101  # done, and no error
        return found

    def add_done_callback(self, callback: Callback) -> None:
        """Call `callback(delivery)` when it is done, at once when it already is.

        Callbacks run on the producer's polling thread (or in `flush`), and must be short and not wait. What
        they raise is logged.
        """
        with self._lock:
            if not self.done():
                if self._callbacks is None:
                    self._callbacks = []
                self._callbacks.append(callback)
                return
        self._call(callback)

    def __await__(self) -> Generator[Any, None, RecordMetadata]:
        if not self.done():
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

            self.add_done_callback(wake)
            yield from settled.__await__()
        return self.result(0)

    def acknowledge(self, error: KafkaError | None, message: Message) -> None:
        """Called by the client with the broker's answer."""
        self._settle(refusal(self._topic, error) if error is not None else None, message)

    def fail(self, error: PublishError) -> None:
        """Called by the producer when it gives the record up."""
        self._settle(error, None)

    def _settle(self, error: PublishError | None, message: Message | None) -> None:
        with self._lock:
            if error is not None:
                self._error = error
            else:
                self._metadata = message
            waiter, callbacks = self._waiter, self._callbacks
            self._waiter = self._callbacks = None
        if waiter is not None:
            waiter.set()
        for callback in callbacks or ():
            self._call(callback)

    def _wait(self, timeout: float | None) -> None:
        with self._lock:
            if self.done():
                return
            if self._waiter is None:
                self._waiter = threading.Event()
            waiter = self._waiter
        if not waiter.wait(timeout):
            raise TimeoutError(f"{self._topic}: no answer of the broker within {timeout} s; it may still come")

    def _call(self, callback: Callback) -> None:
        try:
            callback(self)
        except Exception:
            _log.exception("delivery callback failed", topic=self._topic)


def refusal(topic: str, error: KafkaError) -> PublishError:
    """The error for a record that the client or the broker refused."""
    hint = _HINTS.get(error.code(), "")
    return PublishError(f"{topic}: {error.str()}{hint}", code=error.name(), retriable=bool(error.retriable()))


_HINTS = {
    KafkaError._UNKNOWN_TOPIC: "; `offsetzero topics apply` makes the declared topics",
    KafkaError.UNKNOWN_TOPIC_OR_PART: "; `offsetzero topics apply` makes the declared topics",
    KafkaError.MSG_SIZE_TOO_LARGE: "; store large content elsewhere and publish its URI",
    KafkaError._MSG_TIMED_OUT: "; the broker did not answer in time, the record may have landed",
}


def _known(value: int | None) -> int:
    return -1 if value is None else value
