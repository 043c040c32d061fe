"""What a handler is given besides the event."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, NamedTuple, Protocol

from psycopg_pool import ConnectionPool

from offsetzero import logs
from offsetzero.errors import ConfigurationError
from offsetzero.logs import Logger
from offsetzero.retry.provider_calls import ProviderCall
from offsetzero.schemas.event import Event
from offsetzero.schemas.metadata import Metadata, span_of
from offsetzero.settings import Settings
from offsetzero.store.leases import UNLEASED
from offsetzero.tracing import Span

MAX_PROVIDER = 100
"""Characters of a provider's name."""


class Source(NamedTuple):
    """Where the record was first appended, whichever topic it comes from now.

    Attributes:
        topic_id: of that topic, as Kafka knows it: a topic that was deleted and made again has another.
    """

    topic: str
    partition: int
    offset: int
    key: bytes | None
    timestamp_ms: int
    topic_id: str = ""


class Handled(Protocol):
    """What is known of the event in work; made when it is looked at, for most handlers need little of it."""

    @property
    def meta(self) -> Metadata: ...

    @property
    def source(self) -> Source: ...

    @property
    def sequence(self) -> int | None: ...

    @property
    def attempt(self) -> int: ...

    @property
    def idempotency_key(self) -> str: ...

    @property
    def generation(self) -> int: ...

    @property
    def span(self) -> Span | None: ...

    @property
    def fence(self) -> int: ...

    @property
    def log(self) -> Logger: ...


@dataclass(frozen=True, slots=True)
class Given:
    """What is known of an event, said outright: for tests that call a handler with `Context(Given(…), …)`."""

    meta: Metadata
    source: Source
    attempt: int
    idempotency_key: str
    log: Logger
    generation: int = 1

    @property
    def sequence(self) -> int | None:
        """That of the metadata."""
        return self.meta.sequence

    @property
    def fence(self) -> int:
        """None: nobody leases a step for it."""
        return UNLEASED

    @property
    def span(self) -> Span | None:
        """The one that the metadata tell of."""
        return span_of(self.meta)


class Providers(Protocol):
    """The systems that handlers call."""

    def call(self, name: str, handled: Any) -> ProviderCall:
        """A call of a provider for the event in work."""
        ...


class Context:
    """One handling of one event by one group.

    Attributes:
        settings: of this process.
        connection: the transaction's psycopg connection, sync or async as the handler is; None in `prepare` and in
            a group without a database.
        prepared: what `prepare` returned.
    """

    __slots__ = ("_pool", "_providers", "connection", "handled", "outgoing", "prepared", "settings", "warnings")

    def __init__(
        self,
        handled: Handled,
        settings: Settings,
        pool: ConnectionPool[Any] | None,
        providers: Providers | None = None,
    ) -> None:
        self.handled = handled
        self.settings = settings
        self._pool = pool
        self._providers = providers
        self.connection: Any = None
        self.prepared: Any = None
        self.warnings: list[str] = []
        self.outgoing: list[tuple[Event, dict[str, Any]]] = []

    @property
    def meta(self) -> Metadata:
        """The CloudEvents attributes; for a raw tombstone, id and source name the place in the log."""
        return self.handled.meta

    @property
    def record(self) -> Source:
        """Where the record was first appended: in its source topic, also when it comes from a retry topic now."""
        return self.handled.source

    @property
    def sequence(self) -> int | None:
        """The version of the entity (`ce_sequence`): tells an older event from a newer one. None when it names none."""
        return self.handled.sequence

    @property
    def attempt(self) -> int:
        """Which attempt this is, from 1."""
        return self.handled.attempt

    @property
    def idempotency_key(self) -> str:
        """The same for every attempt of this event in this generation: with it a system outside acts once, too."""
        return self.handled.idempotency_key

    @property
    def generation(self) -> int:
        """In which the event is handled: another number means that all of it is to be done again."""
        return self.handled.generation

    @property
    def trace_headers(self) -> dict[str, str]:
        """Headers for calls of other systems: `traceparent` and `tracestate` where the event is of a trace, and the
        run's id as `X-Run-Id`."""
        return logs.headers_of(self.handled.span, self.meta.run_id)

    @property
    def log(self) -> Logger:
        """A logger; each line bears run id, event id, group and attempt, and the trace if there is one."""
        return self.handled.log

    @property
    def pool(self) -> ConnectionPool[Any]:
        """Connections for `prepare`, which has no transaction.

        Raises:
            ConfigurationError: the group is declared with `database=False` or `transactional=True`.
        """
        if self._pool is None:
            raise ConfigurationError(
                "ctx.pool: this group has no database (it is declared with database=False or transactional=True)"
            )
        return self._pool

    def provider(self, name: str) -> ProviderCall:
        """Around a call of another system: `with ctx.provider("openai"): …`, or `async with`.

        It waits for its turn: one provider gets so many calls at once, and so many a second, from all processes
        together (`OFFSETZERO_PROVIDERS__…`). What is raised inside is counted. While the provider is down its records
        wait, with no attempt counted; so do those whose failure is the provider's. For `prepare`: in a handler a
        transaction would be open meanwhile.

        Args:
            name: the same wherever that provider is called; short, it is a label of metrics.

        Raises:
            ProviderWaits: on entering or leaving the block. Let it pass, or do without the provider.
        """
        if not 0 < len(name) <= MAX_PROVIDER:
            raise ConfigurationError(f"ctx.provider({name!r}): a name has 1 to {MAX_PROVIDER} characters")
        if self._providers is None:
            return ProviderCall.unprotected(name)
        return self._providers.call(name, self.handled)

    def warn(self, text: str) -> None:
        """Add a warning to this group's step of the run; the run succeeds all the same."""
        self.warnings.append(text)

    def publish(self, event: Event, **metadata: Any) -> None:
        """Publish an event if, and only if, the handler's effect is committed.

        In a database group it goes through the outbox of the same transaction, in a transactional group it is in one
        Kafka transaction with the offset. Without either it is published after the handler has returned, and the
        record is done when the broker has it.

        Args:
            event: what to publish.
            metadata: as for `Publisher.publish`; run, correlation and causation follow from the event in work.
        """
        self.outgoing.append((event, metadata))


class BatchContext:
    """One call of a batch handler.

    Attributes:
        settings: of this process.
        connection: the transaction of all events; None in a group without a database.
    """

    __slots__ = ("_contexts", "_make", "connection", "settings")

    def __init__(self, make: Callable[[], list[Context]], settings: Settings) -> None:
        self._make = make
        self._contexts: list[Context] | None = None
        self.settings = settings
        self.connection: Any = None

    @property
    def contexts(self) -> list[Context]:
        """Of the events, in their order: metadata, record and attempt of each, and `publish` with its causation."""
        if self._contexts is None:
            self._contexts = self._make()
        return self._contexts

    def provider(self, name: str) -> ProviderCall:
        """As `Context.provider`; all events of the call wait together."""
        return self.contexts[0].provider(name)

    @property
    def used(self) -> list[Context]:
        """The contexts, if the handler has looked at them."""
        return self._contexts or []
