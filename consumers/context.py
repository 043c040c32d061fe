"""What a handler is given besides the event."""

from dataclasses import dataclass, field
from typing import Any

from psycopg_pool import ConnectionPool

from offsetzero.logs import Logger
from offsetzero.schemas.event import Event
from offsetzero.schemas.metadata import Metadata
from offsetzero.settings import Settings


@dataclass(frozen=True, slots=True)
class Source:
    """Where the record was read."""

    topic: str
    partition: int
    offset: int
    key: bytes | None
    timestamp_ms: int


@dataclass(slots=True)
class Context:
    """One handling of one event by one group.

    Attributes:
        meta: the CloudEvents attributes; for a raw tombstone, id and source name the place in the log.
        record: where it was read.
        attempt: which attempt this is, from 1.
        idempotency_key: the same for every attempt of this event in this group; give it to systems outside the
            database, so that they too act once.
        log: bound to run id, event id, group and attempt.
        settings: of this process.
        pool: connections for `prepare`, which has no transaction.
        connection: the transaction's psycopg connection, sync or async as the handler is; None in `prepare`.
        prepared: what `prepare` returned.
    """

    meta: Metadata
    record: Source
    attempt: int
    idempotency_key: str
    log: Logger
    settings: Settings
    pool: ConnectionPool[Any]
    connection: Any = None
    prepared: Any = None
    warnings: list[str] = field(default_factory=list)
    outgoing: list[tuple[Event, dict[str, Any]]] = field(default_factory=list)

    def warn(self, text: str) -> None:
        """Add a warning to this group's step of the run; the run succeeds all the same."""
        self.warnings.append(text)

    def publish(self, event: Event, **metadata: Any) -> None:
        """Publish an event if, and only if, the handler's transaction commits (through the outbox).

        Args:
            event: what to publish.
            metadata: as for `Publisher.publish`; run, correlation and causation follow from the event in work.
        """
        self.outgoing.append((event, metadata))
