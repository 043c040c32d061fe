"""From a record to the call of a handler; what cannot be read becomes a failure, never an exception."""

import asyncio
import hashlib
import uuid
from collections.abc import Mapping
from typing import Any

from offsetzero import logs
from offsetzero.clock import SYSTEM, Clock
from offsetzero.consumers.context import Source
from offsetzero.consumers.group import ConsumerGroup, Route
from offsetzero.consumers.record import Record
from offsetzero.consumers.working.amended import Amended
from offsetzero.errors import DecodeError, SchemasUnavailable
from offsetzero.logs import Logger
from offsetzero.retry import headers as retry_headers
from offsetzero.retry.failures import Discard, Failure, Poison, Throttled
from offsetzero.retry.headers import Hop, Origin
from offsetzero.schemas import cloudevents
from offsetzero.schemas.cloudevents import Glance
from offsetzero.schemas.codec import Codec, FindSchema
from offsetzero.schemas.event import Event, event_class
from offsetzero.schemas.metadata import Metadata, span_of
from offsetzero.store.forced import Forced
from offsetzero.store.leases import UNLEASED
from offsetzero.store.processed import RAW_SOURCE, EventIdentity, short
from offsetzero.tracing import Span

UNREADABLE = "unreadable"
TOMBSTONE = "tombstone"


class Call:
    """A record as far as it could be read. What most handlings do not need is made when it is looked at.

    Exactly one holds: `failure` says why it cannot be handled; `route` is None and nothing handles it; `route`
    handles it, with `event` or, for a tombstone, without.

    Attributes:
        label: the event type, `tombstone` or `unreadable`: for metrics.
        early: its time has not come: it is to wait once more, which consumes no attempt.
        known_as: the generation of the group whose topics and consumer group it comes from.
    """

    __slots__ = (
        "_hop",
        "_identity",
        "_span",
        "early",
        "event",
        "failure",
        "glance",
        "group",
        "known_as",
        "label",
        "record",
        "route",
    )

    def __init__(
        self, record: Record, group: str, glance: Glance | None, hop: Hop | None = None, known_as: int = 1
    ) -> None:
        self.record = record
        self.group = group
        self.known_as = known_as
        self.glance = glance
        self.label = UNREADABLE
        self.event: Event | None = None
        self.route: Route | None = None
        self.failure: Failure | None = None
        self.early = False
        self._hop = hop
        self._identity: EventIdentity | None = None
        self._span: Span | None = None

    @property
    def hop(self) -> Hop:
        """What it carries through retries; that of a first attempt unless it comes from a retry topic."""
        if self._hop is None:
            self._hop = first_hop(self.record)
        return self._hop

    @property
    def meta(self) -> Metadata:
        """Its CloudEvents attributes; what has none is known by its place."""
        if self.glance is not None:
            return self.glance.meta
        kind = TOMBSTONE if self.record.value is None else "raw"
        return Metadata(id=str(self.hop.origin), source=RAW_SOURCE, type=kind)

    @property
    def identity(self) -> EventIdentity:
        """Whose outcome is written."""
        if self._identity is None:
            self._identity = self._identify()
        return self._identity

    def _identify(self) -> EventIdentity:
        hop, glance = self._hop, self.glance
        number = 0 if hop is None else hop.redrive_no
        generation = self.known_as if self.record.owned.forced is None else self._forced(self.record.owned.forced)
        if glance is not None:
            return EventIdentity(self.group, short(glance.source), short(glance.id), number, generation)
        return EventIdentity(self.group, RAW_SOURCE, str(self.hop.origin), number, generation)

    def _forced(self, forced: Forced) -> int:
        origin, kind = self.hop.origin, self.glance.type if self.glance is not None else None
        return forced.generation_of(origin.topic_id, origin.partition, origin.offset, self.record.key, kind)

    @property
    def run_id(self) -> uuid.UUID | None:
        """The run that this event belongs to, if it names one."""
        try:
            return uuid.UUID(self.meta.run_id) if self.meta.run_id else None
        except ValueError:
            return None

    @property
    def key(self) -> str | None:
        """The record key as text."""
        key = self.record.key
        return key.decode(errors="backslashreplace") if key is not None else None

    # --- as handlers see it

    @property
    def generation(self) -> int:
        """The one in which it has its outcome."""
        return self.identity.generation

    @property
    def source(self) -> Source:
        """Where it was first read."""
        record, hop = self.record, self._hop
        if hop is None:
            owned = record.owned
            return Source(owned.topic, owned.partition, record.offset, record.key, record.timestamp_ms, owned.topic_id)
        origin = hop.origin
        return Source(origin.topic, origin.partition, origin.offset, record.key, hop.timestamp_ms, origin.topic_id)

    @property
    def sequence(self) -> int | None:
        """The version of its entity."""
        return self.glance.sequence if self.glance is not None else None

    @property
    def attempt(self) -> int:
        """Which attempt this is, from 1."""
        return self.hop.attempt

    @property
    def idempotency_key(self) -> str:
        """32 hex digits, the same for every attempt of this event in this group."""
        one = self.identity
        key = f"{one.group}|{one.generation}|{one.source}|{one.event_id}|{one.redrive_no}"
        return hashlib.sha256(key.encode()).hexdigest()[:32]

    @property
    def fence(self) -> int:
        """Of the lease of its step; `UNLEASED` where it has none."""
        return self.record.fence or UNLEASED

    @property
    def span(self) -> Span | None:
        """This handling, in the trace that the event is of; None for an event of none."""
        if self._span is None and (came := span_of(self.meta)) is not None:
            self._span = came.next()
        return self._span

    @property
    def log(self) -> Logger:
        """The logger of the group's handlers; in a call of many it brings what the line is about."""
        logger = logs.get(f"offsetzero.groups.{self.group}")
        return logger if logs.SUBJECT.get() is self else logger.bind(**self.log_fields())

    def cause_of(self, given: Mapping[str, Any], source: str) -> dict[str, Any]:
        """The attributes of an event that its handler publishes, as for `Publisher.publish`.

        Args:
            given: what the handler says of it, which wins.
            source: `ce_source` of this process.
        """
        meta = self.meta
        followed = {"run_id": meta.run_id, "correlation_id": meta.correlation_id, "causation_id": meta.id}
        if self.span is not None:
            followed |= self.span.headers()
        return {"source": source, **followed, **given}

    def log_fields(self) -> dict[str, object]:
        """On every line that is logged while the record is worked on, whoever logs it."""
        meta = self.meta
        known: dict[str, object] = {"group": self.group, "event_id": meta.id}
        known |= {"run_id": meta.run_id, "attempt": self.hop.attempt}
        return known | self.span.log_fields() if self.span is not None else known


def first_hop(record: Record) -> Hop:
    """That of a record which was read where it was first appended."""
    return Hop(_place(record), timestamp_ms=record.timestamp_ms)


class CallReader:
    """Reads records for one group.

    Args:
        group: whose handlers are called.
        codec: decodes the data.
        retry_topics: the group's retry topics: only there the `oz_` headers count.
        clock: wall time.
        generation: of the group.
        amended: what operators have decided about events, for a generation that reads the log anew.
    """

    def __init__(
        self,
        group: ConsumerGroup,
        codec: Codec,
        retry_topics: frozenset[str],
        clock: Clock = SYSTEM,
        generation: int = 1,
        amended: Amended | None = None,
    ) -> None:
        self._group = group
        self._amended = amended or Amended(group.name)
        self._generation = generation
        self._codec = codec
        self._retry_topics = retry_topics
        self._clock = clock

    def read(self, record: Record) -> Call:
        """What to do with a record.

        Raises:
            SchemasUnavailable: its writer schema cannot be looked up now, so nothing is known about it.
        """
        hop: Hop | None = None
        if record.owned.topic in self._retry_topics:
            try:
                hop = retry_headers.read(record.headers, _place(record), record.timestamp_ms)
            except DecodeError as error:
                return self._poison(self._call(record), error)
        glance: Glance | None = None
        try:
            if record.value is not None or cloudevents.is_cloudevent(record.headers):
                glance = cloudevents.glance_at(record.value, record.header_names, record.header_values)
        except Exception as error:  # InvalidEvent, or what a library makes of bytes that nobody foresaw
            return self._poison(self._call(record, None, hop), error)
        call = self._call(record, glance, hop)
        if hop is not None and hop.until_ms > self._clock.now_ms():
            call.early, call.failure = True, Throttled("retry-after", "its time has not come")
            return call
        amendments = self._amended.events
        if record.owned.forced is not None and call.generation > 1:
            amendments = record.owned.forced.amendments
        if amendments and glance is not None and (one := call.identity).redrive_no == 0:
            # One that was sent again carries its own.
            if amendments.has_discarded(one.source, one.event_id):
                call.label, call.failure = glance.type, Discard("by-operator", "an operator has discarded the event")
                return call
            if (amended := amendments.edit_of(one.source, one.event_id)) is not None:
                glance = cloudevents.glance_at(amended, record.header_names, record.header_values)
        if hop is not None and hop.discard:
            call.label = glance.type if glance is not None else TOMBSTONE
            call.failure = Discard("by-operator", "an operator has discarded the event")
            return call
        if glance is None or glance.data is None:
            call.label = TOMBSTONE
            call.route = self._group.tombstones
            return call
        return self._with_data(call, glance, glance.data)

    def _call(self, record: Record, glance: Glance | None = None, hop: Hop | None = None) -> Call:
        return Call(record, self._group.name, glance, hop, self._generation)

    def _with_data(self, call: Call, glance: Glance, data: bytes) -> Call:
        event_type = glance.type
        route = self._group.routes.get(event_type)
        try:
            if route is not None:
                call.label = event_type
                call.event = self._codec.read(event_type, data, glance.content_type)
                call.route = route
                return call
            if event_class(event_type) is not None or self._codec.knows(event_type, data):
                call.label = event_type
                return call
        except (SchemasUnavailable, LooksUp):
            raise
        except Exception as error:
            return self._poison(call, error)
        call.failure = Poison("unknown-type", f"no contract explains the event type {event_type!r}")
        return call

    @staticmethod
    def _poison(call: Call, error: Exception) -> Call:
        call.failure = Poison("unreadable", f"{type(error).__name__}: {error}")
        call.failure.__cause__ = error
        return call


def _place(record: Record) -> Origin:
    return Origin(record.owned.topic_id, record.topic, record.partition, record.offset)


def lookup_outside_loops(find: FindSchema) -> FindSchema:
    """A look-up of writer schemas that blocks threads, but no event loop: there it raises `LooksUp`."""

    def look(fingerprint: str) -> str | None:
        if asyncio._get_running_loop() is not None:
            raise LooksUp
        return find(fingerprint)

    return look


class LooksUp(Exception):
    """A writer schema must be looked up in the log."""
