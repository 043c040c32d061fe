"""What a webhook says: the same bytes and the same id in every attempt."""

import json
import uuid
from datetime import datetime

from offsetzero.schemas.event import Event
from offsetzero.schemas.metadata import Metadata

EVENT_TYPES = ("run.succeeded", "run.failed", "run.cancelled")
"""The events that can be subscribed to."""


def message_id(meta: Metadata) -> str:
    """The message's id, which receivers drop duplicates by: it follows from the event alone."""
    # An event id is unique only with its source, and may hold characters that a header may not.
    return f"msg_{uuid.uuid5(uuid.NAMESPACE_URL, json.dumps([meta.source, meta.id])).hex}"


def payload(event: Event, at: datetime) -> str:
    """The body: JSON with `type`, `timestamp` and `data`, as Standard Webhooks recommends."""
    return json.dumps(
        {"type": event.event_type, "timestamp": at.isoformat(), "data": event.model_dump(mode="json")},
        ensure_ascii=False,
        separators=(",", ":"),
    )
