"""What a webhook says: the same bytes and the same id in every attempt."""

import json
import uuid
from datetime import UTC, datetime
from typing import Any

from offsetzero.schemas.event import Event
from offsetzero.schemas.metadata import Metadata

EVENT_TYPES = ("run.succeeded", "run.failed", "run.cancelled")
"""The events that can be subscribed to."""
TEST = "webhook.test"
"""The type of a message that a tenant has sent to try a subscription."""


def message_id(meta: Metadata) -> str:
    """The message's id, which receivers drop duplicates by: it follows from the event alone."""
    # An event id is unique only with its source, and may hold characters that a header may not.
    return f"msg_{uuid.uuid5(uuid.NAMESPACE_URL, json.dumps([meta.source, meta.id])).hex}"


def payload(event: Event, at: datetime) -> str:
    """The body: JSON with `type`, `timestamp` and `data`, as Standard Webhooks recommends.

    Times have one form, whatever zone the event has them in: `2026-01-31T12:00:00.250000Z`.
    """
    return _body(event.event_type, at, event.model_dump())


def test_payload(webhook_id: uuid.UUID, at: datetime) -> str:
    """The body of a message that tries a subscription."""
    return _body(TEST, at, {"webhook_id": webhook_id})


def _body(kind: str, at: datetime, data: dict[str, Any]) -> str:
    return json.dumps(
        {"type": kind, "timestamp": at, "data": data},
        ensure_ascii=False,
        separators=(",", ":"),
        default=_text,
    )


def _text(value: Any) -> str:
    """What JSON has no form for: times, and ids."""
    if isinstance(value, datetime):
        return value.astimezone(UTC).isoformat().replace("+00:00", "Z")
    if isinstance(value, uuid.UUID):
        return str(value)
    raise TypeError(f"a webhook cannot carry a {type(value).__name__}")
