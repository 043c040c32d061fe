"""The producer of this process: one confluent-kafka Producer, its polling thread, and a Delivery per record."""

import asyncio
import logging
import threading
from collections.abc import Mapping
from types import MappingProxyType, TracebackType
from typing import Any, Self

from confluent_kafka import KafkaError, KafkaException, Producer

from offsetzero.client_log import LOGGER, watched
from offsetzero.clock import SYSTEM
from offsetzero.errors import PublishError
from offsetzero.producers.answers import Answers
from offsetzero.producers.delivery import Delivery, RecordMetadata, refusal
from offsetzero.schemas.cloudevents import Headers
from offsetzero.settings import Settings

__all__ = ["Delivery", "LogProducer", "RecordMetadata"]

_log = logging.getLogger(__name__)

MAX_RECORD_BYTES = 1_048_588 + 64 * 1024
"""As the retry topics' `max.message.bytes`: what fits a source fits there with more headers."""
ANY_SIZE: Mapping[str, Any] = MappingProxyType({"message.max.bytes": 256 * 1024 * 1024})
"""`more` of a producer of what another topic has taken: the client counts before it compresses, the broker after."""
ERROR_PATIENCE = 3.0
"""Seconds that a `with` block left by an error waits for the broker's next answer; every answer starts them anew."""
_AWAY = frozenset({KafkaError._TRANSPORT, KafkaError._ALL_BROKERS_DOWN, KafkaError._RESOLVE})
_SPACE_SECONDS = 0.005
_ANY_PARTITION, _NOW = -1, 0  # as the client's produce() has them


class LogProducer:
    """Appends records to topics. Idempotent, acknowledged by all in-sync replicas, keyed as Java does it.

    Any thread may produce. Made after a fork, never before one. Close it, or use it as a context manager.

    Args:
        settings: the cluster.
        delivery_timeout: seconds after which a record that the broker did not acknowledge has failed.
        linger: seconds that a record may wait for others to share a request with.
        more: configuration of the client that a kind of producer needs besides.
    """

    def __init__(
        self,
        settings: Settings,
        *,
        delivery_timeout: float = 120.0,
        linger: float = 0.005,
        more: Mapping[str, Any] = MappingProxyType({}),
    ) -> None:
        config = {"linger.ms": linger * 1000, **_config(settings, delivery_timeout), **more}
        self._producer = Producer(watched({**config, "error_cb": self._on_error}), logger=LOGGER)
        self._delivery_timeout = delivery_timeout
        self._closed = threading.Event()
        self._answers = Answers(self._producer)

    @property
    def fatal(self) -> str | None:
        """Why this producer can never send again, once it cannot."""
        return self._answers.fatal

    def produce(
        self,
        topic: str,
        *,
        key: bytes | str | None,
        value: bytes | None,
        headers: Headers | None = None,
        partition: int | None = None,
        timestamp_ms: int | None = None,
    ) -> Delivery:
        """Append one record; returns before it is sent. Waits while the queue is full.

        Args:
            topic: name on the cluster (see `Names.topic`).
            key: records of one key go to one partition; None spreads them.
            value: None is a tombstone.
            headers: in order; a value may be None.
            partition: by default murmur2 of the key, as Java, Debezium and aiokafka do.
            timestamp_ms: the record's time, milliseconds since 1970; by default now.

        Returns:
            The delivery; a record that is refused at once fails there, too.

        Raises:
            PublishError: the producer is closed, or its queue stayed full for the whole delivery time-out.
        """
        give_up: float | None = None
        while (delivery := self._append(topic, key, value, headers, partition, timestamp_ms)) is None:
            give_up = self._look_for_space(topic, give_up)
            self._closed.wait(_SPACE_SECONDS)
        return delivery

    async def produce_async(
        self, topic: str, *, key: bytes | str | None, value: bytes | None, headers: Headers | None = None
    ) -> Delivery:
        """As `produce`, for an asyncio service: while the queue is full other tasks run."""
        give_up: float | None = None
        while (delivery := self._append(topic, key, value, headers, None, None)) is None:
            give_up = self._look_for_space(topic, give_up)
            await asyncio.sleep(_SPACE_SECONDS)
        return delivery

    def flush(self, timeout: float) -> int:
        """Wait until every record has its answer.

        Args:
            timeout: seconds.

        Returns:
            How many records have none yet.
        """
        return self._answers.flush(timeout)

    def close(self, timeout: float = 30.0, *, patience: float | None = None) -> int:
        """Flush, then give up what is left; each delivery is done afterwards. May be called twice.

        Args:
            timeout: seconds in all.
            patience: seconds without any answer of the broker after which the rest is given up; by default no less
                than `timeout`.

        Returns:
            How many records were given up.
        """
        if self._closed.is_set():
            return 0
        self._closed.set()
        left = self._flush(timeout, patience or timeout)
        if left:
            _log.warning("kafka producer: %s records were given up: the broker has not answered", left)
            self._producer.purge()
            self._answers.flush(1.0)
        self._answers.stop()
        return left

    def purge(self) -> None:
        """Give up every record that is not acknowledged: for a consumer that has lost its partitions."""
        self._producer.purge()

    def __len__(self) -> int:
        """Records that have no answer yet."""
        return len(self._producer)

    def __bool__(self) -> bool:
        return True

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close(patience=None if kind is None else ERROR_PATIENCE)

    def _flush(self, timeout: float, patience: float) -> int:
        """As `flush`, but only as long as answers come."""
        deadline = SYSTEM.monotonic() + timeout
        left = len(self)
        while (now := SYSTEM.monotonic()) < deadline:
            before, left = left, self.flush(min(patience, deadline - now))
            if not left or left >= before:
                break
        return left

    def _append(
        self,
        topic: str,
        key: bytes | str | None,
        value: bytes | None,
        headers: Headers | None,
        partition: int | None,
        timestamp_ms: int | None,
    ) -> Delivery | None:
        """Give the record to the client; None when its queue is full."""
        if self._closed.is_set():
            raise PublishError(f"{topic}: this producer is closed")
        delivery = Delivery(topic, self._answers)
        try:
            # By position: names cost as much as the call itself.
            self._producer.produce(
                topic,
                value,
                key,
                _ANY_PARTITION if partition is None else partition,
                delivery.acknowledge,
                None,
                timestamp_ms or _NOW,
                headers,  # type: ignore[arg-type]  # theirs is an invariant list
            )
        except BufferError:
            return None
        except KafkaException as error:
            delivery.fail(refusal(topic, error.args[0]))
            return delivery
        self._answers.help()
        if self._closed.is_set() and not self._answers.inside():  # meanwhile: nobody else fetches its answer
            self._answers.flush(1.0)
        return delivery

    def _look_for_space(self, topic: str, give_up: float | None) -> float:
        """The queue is full; returns until when to wait for room."""
        if self._answers.inside():
            raise PublishError(f"{topic}: the queue is full, and a delivery callback cannot wait for room")
        now = SYSTEM.monotonic()
        if give_up is not None and now > give_up:
            raise PublishError(
                f"{topic}: the producer's queue is full and does not drain; is the broker away?", retriable=True
            )
        return now + self._delivery_timeout if give_up is None else give_up

    def _on_error(self, error: KafkaError) -> None:
        if error.code() in _AWAY:  # the client's own line says so, and which broker
            return
        _log.warning("kafka producer: %s: %s", error.name(), error.str())


def _config(settings: Settings, delivery_timeout: float) -> dict[str, Any]:
    return {
        # A topic that nobody declared is a mistake, not a wish; found out within ten seconds.
        "allow.auto.create.topics": False,
        "topic.metadata.propagation.max.ms": 10_000,
        "compression.type": "lz4",
        **settings.kafka.client_config(),
        "enable.idempotence": True,
        "acks": "all",
        "partitioner": "murmur2_random",
        "message.max.bytes": MAX_RECORD_BYTES,
        "delivery.timeout.ms": int(delivery_timeout * 1000),
    }
