"""Sends writer schemas to the topic `schemas` before the first event that needs them."""

from offsetzero.errors import PublishError
from offsetzero.producers.log import LogProducer
from offsetzero.topics.catalogue import SCHEMAS
from offsetzero.topics.names import Names


class SchemaPublisher:
    """Publishes each writer schema once per process. The topic is compacted, so again does no harm.

    Args:
        producer: sends them; it is not closed here.
        names: the namespace.
        timeout: seconds to wait for the broker's acknowledgement.
    """

    def __init__(self, producer: LogProducer, names: Names, *, timeout: float = 30.0) -> None:
        self._producer = producer
        self._topic = names.topic(SCHEMAS)
        self._timeout = timeout
        self._known: set[str] = set()

    def known(self, fingerprint: str) -> bool:
        """Whether this process has published the schema: then `ensure` does not wait."""
        return fingerprint in self._known

    def ensure(self, fingerprint: str, text: str) -> None:
        """Return when the schema is in the log: an event must never be there before its writer schema.

        Args:
            fingerprint: CRC-64-AVRO in hex, as on the wire.
            text: the schema's JSON.

        Raises:
            PublishError: the broker did not take it.
        """
        if fingerprint in self._known:
            return
        delivery = self._producer.produce(self._topic, key=fingerprint, value=text.encode(), headers=None)
        try:
            delivery.result(self._timeout)
        except TimeoutError as error:
            raise PublishError(f"writer schema {fingerprint}: {error}", retriable=True) from None
        self._known.add(fingerprint)
