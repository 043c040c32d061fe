"""The CloudEvents attributes of an event, apart from its data."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime

from offsetzero import tracing
from offsetzero.tracing import Span


@dataclass(frozen=True, slots=True, kw_only=True)
class Metadata:
    """CloudEvents 1.0 context attributes and our extensions (design section 3).

    `id` is unique together with `source`. `sequence` is the entity's version, where known.
    `extensions` holds every other attribute as it came.
    """

    id: str
    source: str
    type: str
    time: datetime | None = None
    subject: str | None = None
    dataschema: str | None = None
    tenant_id: str | None = None
    run_id: str | None = None
    correlation_id: str | None = None
    causation_id: str | None = None
    sequence: int | None = None
    traceparent: str | None = None
    tracestate: str | None = None
    extensions: Mapping[str, str] = field(default_factory=dict)


def span_of(meta: Metadata) -> Span | None:
    """The piece of work that has sent an event here: of this hop, else, by CloudEvents' distributed tracing extension,
    the one that has made the event. None for an event that tells of none."""
    came = tracing.read(meta.traceparent, meta.tracestate) if meta.traceparent else None
    return came or tracing.read(meta.extensions.get(tracing.PARENT), meta.extensions.get(tracing.STATE))
