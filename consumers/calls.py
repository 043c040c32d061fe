"""From a record to the call of a handler; what cannot be read becomes a failure, never an exception."""

import asyncio
import hashlib
import uuid
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from offsetzero.consumers.group import ConsumerGroup, Route
from offsetzero.consumers.record import Record
from offsetzero.errors import DecodeError, SchemasUnavailable
from offsetzero.retry import headers as retry_headers
from offsetzero.retry.failures import Failure, Poison
from offsetzero.retry.headers import Hop, Origin
from offsetzero.schemas import cloudevents
from offsetzero.schemas.cloudevents import Message
from offsetzero.schemas.codec import Codec, FindSchema
from offsetzero.schemas.event import Event, event_class
from offsetzero.schemas.metadata import Metadata
from offsetzero.store.processed import EventIdentity

MAX_ID = 500
RAW_SOURCE = "offsetzero:raw"  # source of what has no event id: its place in the log is the id


@dataclass(frozen=True, slots=True)
class Call:
    """A record as far as it could be read.

    Exactly one holds: `failure` says why it cannot be handled; `route` is None and nothing handles it; `route`
    handles it, with `event` or, for a tombstone, without.
    """

    record: Record
    hop: Hop
    meta: Metadata
    identity: EventIdentity
    label: str
    event: Event | None = None
    route: Route | None = None
    failure: Failure | None = None

    @property
    def run_id(self) -> uuid.UUID | None:
        """The run that this event belongs to, if it names one."""
        try:
            return uuid.UUID(self.meta.run_id) if self.meta.run_id else None
        except ValueError:
            return None


class CallReader:
    """Reads records for one group.

    Args:
        group: whose handlers are called.
        codec: decodes the data.
        retry_topics: the group's retry topics: only there the `oz_` headers count.
    """

    def __init__(self, group: ConsumerGroup, codec: Codec, retry_topics: frozenset[str]) -> None:
        self._group = group
        self._codec = codec
        self._retry_topics = retry_topics

    def read(self, record: Record) -> Call:
        """What to do with a record.

        Raises:
            SchemasUnavailable: its writer schema cannot be looked up now, so nothing is known about it.
        """
        here = Origin(record.owned.topic_id, record.topic, record.partition, record.offset)
        hop, failure = Hop(here, timestamp_ms=record.timestamp_ms), None
        if record.topic in self._retry_topics:
            try:
                hop = retry_headers.read(record.headers, here, record.timestamp_ms)
            except DecodeError as error:
                failure = _poison(error)
        message = None
        if failure is None:
            try:
                if record.value is not None or cloudevents.is_cloudevent(record.headers):
                    message = cloudevents.read(record.value, record.headers)
            except Exception as error:  # InvalidEvent, or what a library makes of bytes that nobody foresaw
                failure = _poison(error)
        meta = message.meta if message else _raw_metadata(hop, record)
        parts: dict[str, Any] = {
            "record": record,
            "hop": hop,
            "meta": meta,
            "identity": EventIdentity(self._group.name, _short(meta.source), _short(meta.id), hop.redrive_no),
        }
        if failure is not None:
            return Call(**parts, label="unreadable", failure=failure)
        if message is None or message.data is None:
            route = Route(self._group.on_tombstone) if self._group.on_tombstone else None
            return Call(**parts, label="tombstone", route=route)
        return self._with_data(parts, message, message.data)

    def _with_data(self, parts: Mapping[str, Any], message: Message, data: bytes) -> Call:
        event_type = message.meta.type
        route = self._group.routes.get(event_type)
        try:
            if route is not None:
                event = self._codec.decode(event_type, data, message.content_type)
                return Call(**parts, label=event_type, event=event, route=route)
            if event_class(event_type) is not None or self._codec.knows(event_type, data):
                return Call(**parts, label=event_type)
        except (SchemasUnavailable, LooksUp):
            raise
        except Exception as error:
            return Call(**parts, label=event_type if route else "unreadable", failure=_poison(error))
        unknown = Poison("unknown-type", f"no contract explains the event type {event_type!r}")
        return Call(**parts, label="unreadable", failure=unknown)


def _poison(error: Exception) -> Poison:
    failure = Poison("unreadable", f"{type(error).__name__}: {error}")
    failure.__cause__ = error
    return failure


def _short(name: str) -> str:
    """A source or event id as it is stored; a longer one than an index takes is known by its hash."""
    return name if len(name) <= MAX_ID else f"sha256:{hashlib.sha256(name.encode()).hexdigest()}"


def lookup_outside_loops(find: FindSchema) -> FindSchema:
    """A look-up of writer schemas that blocks threads, but no event loop: there it raises `LooksUp`."""

    def look(fingerprint: str) -> str | None:
        if asyncio._get_running_loop() is not None:
            raise LooksUp
        return find(fingerprint)

    return look


class LooksUp(Exception):
    """A writer schema must be looked up in the log."""


def _raw_metadata(hop: Hop, record: Record) -> Metadata:
    return Metadata(id=str(hop.origin), source=RAW_SOURCE, type="tombstone" if record.value is None else "raw")
