"""Which of Kafka's two protocols a group's members speak, and what the client is told for it."""

from typing import Any

from confluent_kafka import KafkaError

CONSUMER = "consumer"
CLASSIC = "classic"
AUTO = "auto"
# What the text of a fatal error has in it when the cluster does not serve KIP-848; the client keeps the code to itself.
_NOT_SERVED = tuple(
    KafkaError(code).str() for code in (KafkaError.UNSUPPORTED_VERSION, KafkaError._UNSUPPORTED_FEATURE)
)


def first(declared: str) -> str:
    """The protocol to begin with: KIP-848 unless the older one was asked for."""
    return CLASSIC if declared == CLASSIC else CONSUMER


def is_refused(error: KafkaError) -> bool:
    """Whether an error says that the cluster does not serve KIP-848 (before Kafka 4.0, or switched off)."""
    return error.code() == KafkaError._FATAL and any(text in error.str() for text in _NOT_SERVED)


def config(protocol: str) -> dict[str, Any]:
    """The client's properties.

    `range` keeps partition p of a source and of its retry topics with one member; `uniform`, the default of KIP-848,
    does not, and neither does the classic protocol's `cooperative-sticky`.
    """
    if protocol == CLASSIC:
        return {"group.protocol": CLASSIC, "partition.assignment.strategy": "range"}
    return {"group.protocol": CONSUMER, "group.remote.assignor": "range"}
