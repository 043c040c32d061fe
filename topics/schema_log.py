"""Writer schemas in the log: the compacted topic `schemas`, keyed by fingerprint."""

import logging
import threading
from collections.abc import Iterable

from confluent_kafka import OFFSET_BEGINNING, Consumer, KafkaError, KafkaException, Producer, TopicPartition

from offsetzero.client_log import LOGGER
from offsetzero.clock import SYSTEM
from offsetzero.errors import PublishError, SchemasUnavailable
from offsetzero.schemas.writer import AvroSchema
from offsetzero.settings import Settings
from offsetzero.topics.catalogue import SCHEMAS
from offsetzero.topics.names import Names

_log = logging.getLogger(__name__)
_POLL_SECONDS = 0.2
_PUBLISH_SECONDS = 30.0
_PAUSE_SECONDS = 0.1
_HINT = "; `offsetzero topics apply` makes the declared topics"
# A broker that has just become the leader, or is about to: seen right after a topic was made.
_PASSING = frozenset({KafkaError.NOT_LEADER_FOR_PARTITION, KafkaError.LEADER_NOT_AVAILABLE, KafkaError._TRANSPORT})


class SchemaLog:
    """Finds writer schemas that are in no contract, and publishes those that others will need.

    A consumer is made at the first miss, not before. Any thread may ask; they share one reader.

    Args:
        settings: names the cluster.
        bound: seconds that one `find` may take.
    """

    def __init__(self, settings: Settings, *, bound: float = 10.0) -> None:
        self._settings = settings
        self._bound = bound
        self._topic = Names(settings.kafka.namespace).topic(SCHEMAS)
        self._lock = threading.Lock()
        self._known: dict[str, str] = {}
        self._consumer: Consumer | None = None
        self._next = 0

    def find(self, fingerprint: str) -> str | None:
        """The JSON of a writer schema.

        A miss reads the topic up to the end that it has now. So None is certain: a producer publishes the
        schema before its first event, and whoever holds the event asks later than that.

        Args:
            fingerprint: CRC-64-AVRO in hex, as on the wire.

        Returns:
            The schema, or None when the topic has none of that fingerprint.

        Raises:
            SchemasUnavailable: the topic could not be read within the bound. Try again: the event is not at fault.
        """
        found = self._known.get(fingerprint)
        if found is not None:
            return found
        deadline = SYSTEM.monotonic() + self._bound
        if not self._lock.acquire(timeout=self._bound):
            raise SchemasUnavailable(f"{SCHEMAS}: not read within {self._bound:g} s; another thread is still at it")
        try:
            if fingerprint not in self._known:
                self._refresh(deadline)
            return self._known.get(fingerprint)
        finally:
            self._lock.release()

    def publish(self, schemas: Iterable[AvroSchema]) -> int:
        """Add to the topic those schemas that it has not got, and wait until the broker has them.

        Of those with one fingerprint the last one counts: they differ in what a reader of its data need not know, such
        as defaults, which the fingerprint leaves out.

        Returns:
            How many were added.

        Raises:
            PublishError: the broker did not take one.
            SchemasUnavailable: the topic could not be read.
        """
        last = {schema.fingerprint: schema for schema in schemas}
        missing = [schema for schema in last.values() if self.find(schema.fingerprint) != schema.text]
        if not missing:
            return 0
        refused: list[KafkaError] = []
        producer = Producer(
            {
                "topic.metadata.propagation.max.ms": 10_000,
                **self._settings.kafka.client_config(),
                "enable.idempotence": True,
                "acks": "all",
                "partitioner": "murmur2_random",
                "delivery.timeout.ms": int(_PUBLISH_SECONDS * 1000),
            },
            logger=LOGGER,
        )
        for schema in missing:
            producer.produce(
                self._topic,
                schema.text.encode(),
                schema.fingerprint,
                on_delivery=lambda error, _message: refused.append(error) if error is not None else None,
            )
        left = producer.flush(_PUBLISH_SECONDS + 1)
        if refused or left:
            reason = refused[0].str() if refused else f"no answer within {_PUBLISH_SECONDS:g} s"
            raise PublishError(f"{SCHEMAS}: {reason}{_HINT}")
        return len(missing)

    def close(self) -> None:
        """Let go of the reader; a later `find` makes another."""
        with self._lock:
            self._drop()

    def _refresh(self, deadline: float) -> None:
        """Read up to the end of now.

        The position, not the number of records, says where the end is: compaction leaves gaps, also the last
        offsets of a topic may hold no record.
        """
        pause = threading.Event()
        while True:
            try:
                return self._read_to_the_end(deadline)
            except KafkaException as error:
                self._drop()
                reason: KafkaError = error.args[0]
                if not reason.retriable() and reason.code() not in _PASSING:
                    raise SchemasUnavailable(f"{SCHEMAS}: {reason.str()}{_HINT}") from error
                if SYSTEM.monotonic() + _PAUSE_SECONDS > deadline:
                    raise SchemasUnavailable(f"{SCHEMAS}: {reason.str()}, for {self._bound:g} s") from error
                pause.wait(_PAUSE_SECONDS)
            except SchemasUnavailable:
                self._drop()
                raise

    def _read_to_the_end(self, deadline: float) -> None:
        consumer = self._consumer or self._open()
        _, high = consumer.get_watermark_offsets(TopicPartition(self._topic, 0), timeout=_left(deadline))
        if high < self._next:
            raise SchemasUnavailable(f"{SCHEMAS}: its end {high} is before {self._next}; was it made again?")
        while self._next < high:
            self._take(consumer, deadline)

    def _take(self, consumer: Consumer, deadline: float) -> None:
        message = consumer.poll(min(_POLL_SECONDS, _left(deadline)))
        if message is None:
            return
        error = message.error()
        if error is not None:
            if error.code() == KafkaError._PARTITION_EOF:
                self._next = max(self._next, message.offset() or 0)
                return
            raise KafkaException(error)
        self._next = (message.offset() or 0) + 1
        key, value = message.key(), message.value()
        try:
            if isinstance(key, bytes) and isinstance(value, bytes):
                self._known[key.decode()] = value.decode()
        except UnicodeDecodeError:
            _log.warning("%s: offset %s holds no schema; it is ignored", SCHEMAS, message.offset())

    def _open(self) -> Consumer:
        consumer = Consumer(
            {
                **self._settings.kafka.client_config(),
                "group.id": f"{self._topic}-reader",  # librdkafka wants one; nothing is committed with it
                "enable.auto.commit": False,
                "enable.auto.offset.store": False,
                "enable.partition.eof": True,
                "auto.offset.reset": "error",
                "fetch.wait.max.ms": 50,
            },
            logger=LOGGER,
        )
        consumer.assign([TopicPartition(self._topic, 0, OFFSET_BEGINNING)])
        self._consumer, self._next = consumer, 0
        return consumer

    def _drop(self) -> None:
        if self._consumer is not None:
            self._consumer.close()
            self._consumer = None


def _left(deadline: float) -> float:
    left = deadline - SYSTEM.monotonic()
    if left <= 0:
        raise SchemasUnavailable(f"{SCHEMAS}: not read up to its end in time; is the cluster up?")
    return left
