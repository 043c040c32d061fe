"""offsetzero: an event-log pipeline on Apache Kafka.

    from offsetzero import ConsumerGroup, Context, DocumentUploaded, Publisher

The names below are imported when they are first used, so that a service that only publishes loads only that.
"""

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from offsetzero.consumers.context import BatchContext, Context
    from offsetzero.consumers.group import ConsumerGroup
    from offsetzero.consumers.projection import Projection
    from offsetzero.errors import OffsetzeroError, ProviderWaits
    from offsetzero.producers.publisher import Publisher
    from offsetzero.retry.failures import (
        Cancelled,
        DeadLetter,
        Discard,
        Permanent,
        Poison,
        ProviderDown,
        Retry,
        Throttled,
        Transient,
    )
    from offsetzero.retry.policy import Tier
    from offsetzero.schemas.documents import DocumentDeleted, DocumentUploaded
    from offsetzero.schemas.event import Event
    from offsetzero.schemas.runs import RunCancelled, RunFailed, RunSucceeded

_HOMES = {
    "BatchContext": "consumers.context",
    "Cancelled": "retry.failures",
    "ConsumerGroup": "consumers.group",
    "Context": "consumers.context",
    "DeadLetter": "retry.failures",
    "Discard": "retry.failures",
    "DocumentDeleted": "schemas.documents",
    "DocumentUploaded": "schemas.documents",
    "Event": "schemas.event",
    "OffsetzeroError": "errors",
    "Permanent": "retry.failures",
    "Poison": "retry.failures",
    "Projection": "consumers.projection",
    "ProviderDown": "retry.failures",
    "ProviderWaits": "errors",
    "Publisher": "producers.publisher",
    "Retry": "retry.failures",
    "RunCancelled": "schemas.runs",
    "RunFailed": "schemas.runs",
    "RunSucceeded": "schemas.runs",
    "Throttled": "retry.failures",
    "Tier": "retry.policy",
    "Transient": "retry.failures",
}

__all__ = [
    "BatchContext",
    "Cancelled",
    "ConsumerGroup",
    "Context",
    "DeadLetter",
    "Discard",
    "DocumentDeleted",
    "DocumentUploaded",
    "Event",
    "OffsetzeroError",
    "Permanent",
    "Poison",
    "Projection",
    "ProviderDown",
    "ProviderWaits",
    "Publisher",
    "Retry",
    "RunCancelled",
    "RunFailed",
    "RunSucceeded",
    "Throttled",
    "Tier",
    "Transient",
]


def __getattr__(name: str) -> Any:
    home = _HOMES.get(name)
    if home is None:
        raise AttributeError(f"module 'offsetzero' has no attribute {name!r}")
    value = getattr(importlib.import_module(f"offsetzero.{home}"), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted([*globals(), *__all__])
