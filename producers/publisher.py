"""The Publisher: events to the log, straight from a service (without a database transaction)."""

import asyncio
from types import TracebackType
from typing import Self, Unpack

from offsetzero import settings as settings_module
from offsetzero.producers.delivery import Delivery, RecordMetadata
from offsetzero.producers.log import LogProducer
from offsetzero.producers.records import Attributes, OutgoingRecord, build, build_tombstone
from offsetzero.producers.schema_publisher import SchemaPublisher
from offsetzero.schemas.codec import Codec
from offsetzero.schemas.event import Event
from offsetzero.settings import Settings
from offsetzero.topics.names import Names


class Publisher:
    """Publishes events.

        with Publisher() as publisher:
            publisher.publish(DocumentDeleted(…)).result(10)

        async with Publisher() as publisher:  # in an asyncio service
            await publisher.publish_async(DocumentDeleted(…))

    Leaving the block waits up to 30 s for what has no answer yet. When an error leaves it, only as long as answers
    come: three seconds without one, and the rest is given up, which a log line says.

    A service that also writes to PostgreSQL uses `offsetzero.producers.outbox` instead: then the event is
    published exactly when the transaction commits.

    Args:
        settings: by default those of the environment.
        source: `ce_source` of what is published; by default the settings' source.
        linger: seconds that an event may wait for others to share a request with. Without it, events that come
            while the broker is busy with the ones before share a request all the same.
    """

    def __init__(self, settings: Settings | None = None, *, source: str | None = None, linger: float = 0.0) -> None:
        settings = settings or settings_module.load(needs=frozenset({"kafka"}))
        self._source = source or settings.source
        self._names = Names(settings.kafka.namespace)
        self._codec = Codec()
        self._producer = LogProducer(settings, linger=linger)
        self._schemas = SchemaPublisher(self._producer, self._names)

    def publish(self, event: Event, **attributes: Unpack[Attributes]) -> Delivery:
        """Append an event to its topic; returns before the broker has it. Waits while the producer's queue is full.

        The first event of a type whose schema is no frozen contract waits until the schema is in the log.

        Args:
            event: its key field decides the partition.
            attributes: see `Attributes`.

        Returns:
            The delivery: `.result(timeout)`, `await`, or `.add_done_callback(…)`.

        Raises:
            InvalidEvent: a value or an attribute that no event may have.
            TopicError: no topic is declared for the event's type.
            PublishError: the queue stayed full, the publisher is closed, or the schema could not be published.
        """
        attributes["source"] = attributes.get("source") or self._source
        record = build(self._codec, event, attributes)
        if record.schema is not None:
            self._schemas.ensure(record.schema.fingerprint, record.schema.text)
        return self._send(record)

    async def publish_async(self, event: Event, **attributes: Unpack[Attributes]) -> RecordMetadata:
        """Append an event to its topic, and return when all in-sync replicas have it. Never blocks the event loop.

        Gather several where their order does not matter; where it does, await one before the next. An event whose
        task is cancelled may be published all the same.

        Args:
            event: its key field decides the partition.
            attributes: see `Attributes`.

        Raises:
            InvalidEvent, TopicError: as `publish`.
            PublishError: as `publish`, and when the broker did not take it.
        """
        attributes["source"] = attributes.get("source") or self._source
        record = build(self._codec, event, attributes)
        if record.schema is not None and not self._schemas.known(record.schema.fingerprint):
            await asyncio.to_thread(self._schemas.ensure, record.schema.fingerprint, record.schema.text)
        return await (
            await self._producer.produce_async(
                self._names.topic(record.topic), key=record.key, value=record.value, headers=record.headers
            )
        )

    def tombstone(self, event_type: str, key: str, **attributes: Unpack[Attributes]) -> Delivery:
        """Append an event without data: handlers receive it as the tombstone of the key.

        Raises:
            InvalidEvent, TopicError, PublishError: as `publish`.
        """
        attributes["source"] = attributes.get("source") or self._source
        return self._send(build_tombstone(event_type, key, attributes))

    def flush(self, timeout: float = 30.0) -> int:
        """Wait up to `timeout` seconds until everything has its answer; returns how many have none."""
        return self._producer.flush(timeout)

    def close(self, timeout: float = 30.0) -> int:
        """Flush and stop; returns how many records were given up."""
        return self._producer.close(timeout)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._producer.__exit__(kind, error, trace)

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await asyncio.to_thread(self._producer.__exit__, kind, error, trace)

    def _send(self, record: OutgoingRecord) -> Delivery:
        return self._producer.produce(
            self._names.topic(record.topic), key=record.key, value=record.value, headers=record.headers
        )
