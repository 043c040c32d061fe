"""Which of Kafka's two protocols a group's members speak, and what the client is told for it."""

from collections.abc import Mapping
from typing import Any

from confluent_kafka import KafkaError

from offsetzero.errors import ConfigurationError

CONSUMER = "consumer"
CLASSIC = "classic"
AUTO = "auto"
HEARTBEAT_MS = 3000  # the client's default
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


def config(protocol: str, given: Mapping[str, Any]) -> dict[str, Any]:
    """The client's properties.

    `range` keeps partition p of a source and of its retry topics with one member; `uniform`, the default of KIP-848,
    does not, and neither does the classic protocol's `cooperative-sticky`.

    Args:
        protocol: the one that is spoken.
        given: the properties that were chosen otherwise.

    Raises:
        ConfigurationError: the chosen session ends before a heartbeat could keep it.
    """
    if protocol == CONSUMER:
        return {"group.protocol": CONSUMER, "group.remote.assignor": "range"}
    return {"group.protocol": CLASSIC, "partition.assignment.strategy": "range", **_heartbeat(given)}


def _heartbeat(given: Mapping[str, Any]) -> dict[str, int]:
    """Of a session that is shorter than the client's default: three beats in it, as Kafka's documentation has it.

    Alone the client would go on with one each 3 s; a shorter session would expire between two, again and again.
    """
    session, heartbeat = (str(given.get(name, "")) for name in ("session.timeout.ms", "heartbeat.interval.ms"))
    if not session.isdecimal():
        return {}
    if not heartbeat:
        return {"heartbeat.interval.ms": max(1, min(HEARTBEAT_MS, int(session) // 3))}
    if heartbeat.isdecimal() and int(heartbeat) >= int(session):
        raise ConfigurationError(
            f"OFFSETZERO_KAFKA__OPTIONS: heartbeat.interval.ms ({heartbeat}) must be lower than session.timeout.ms"
            f" ({session}), and is usually a third of it"
        )
    return {}
