"""The declaration of a consumer group: one file, one object, a function for each event type."""

import re
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from typing import Any, Literal, TypeAlias, TypeVar

from offsetzero.consumers.context import BatchContext, Context
from offsetzero.consumers.declaring import (
    check_event,
    check_function,
    check_limits,
    check_projection,
    check_rules,
    check_transactional,
)
from offsetzero.consumers.projection import Projection
from offsetzero.consumers.record import BULK, bulk_of, tenant_of
from offsetzero.consumers.working.atwork import limited
from offsetzero.consumers.working.limits import Limit
from offsetzero.consumers.working.transaction import is_async
from offsetzero.errors import ConfigurationError
from offsetzero.retry.classify import NO_RULES, Rules
from offsetzero.retry.policy import RetryPolicy, Tier
from offsetzero.schemas.event import Event
from offsetzero.settings import Settings
from offsetzero.store.database import Connection
from offsetzero.topics.catalogue import is_bulk, sources_of

E = TypeVar("E", bound=Event)
Handler: TypeAlias = Callable[[E, Context], Awaitable[None] | None]
Prepare: TypeAlias = Callable[[E, Context], Any]
Tombstone: TypeAlias = Callable[[str | None, Context], Awaitable[None] | None]
BatchHandler: TypeAlias = Callable[[list[Any], BatchContext], None]
Setup: TypeAlias = Callable[[Connection], None]
_NAME = re.compile(r"[a-z][a-z0-9_-]{0,99}")


@dataclass(frozen=True, slots=True)
class Route:
    """What handles the events of one type."""

    handler: Callable[[Any, Context], Any]
    prepare: Callable[[Any, Context], Any] | None = None
    is_async: bool = False
    """Whether the handler is."""

    @staticmethod
    def to(handler: Callable[[Any, Any], Any], prepare: Callable[[Any, Context], Any] | None = None) -> "Route":
        """The route to a handler."""
        return Route(handler, prepare, is_async(handler))


@dataclass(frozen=True, slots=True)
class Batch:
    """What handles many events in one call."""

    handler: Callable[[list[Any], BatchContext], Any]
    size: int


class ConsumerGroup:
    """A consumer group: an independent reader with its own offsets, retry topics and dead letters.

        audit = ConsumerGroup("audit")

        @audit.handler(DocumentUploaded)
        def note(event: DocumentUploaded, ctx: Context) -> None:
            ctx.connection.execute("INSERT INTO …", (event.document_id,))

    Run it with `offsetzero groups run mypackage.audit:audit`.

    Args:
        name: the Kafka group id; also the prefix of its retry and dead-letter topics.
        step: whether this group's part of a run is a step of that name, with its status shown to users.
        topics: what to read; by default the topics that carry the handled event types.
        tiers: the retry tiers; by default those of the settings.
        concurrency: records handled at once by one process; by default that of the settings.
        database: whether effects are in PostgreSQL, each once, in the transaction that `ctx.connection` is. Without
            one, handlers are called at least once and should give `ctx.idempotency_key` to what they act on.
        transactional: whether what handlers publish is in one Kafka transaction with the offset of the event (and with
            its retry or dead letter), without a database: for groups that make events of events. The handlers, sync
            ones, run one after the other.
        per_key: records of one key that are handled at once; over 1, events of a key lose their order.
        per_tenant: records of one tenant (`ce_tenantid`) that one process handles at once; by default as the settings
            say, which is no limit for groups without a step.
        max_duration: seconds that the whole work on an event may take in a group that is a step (with step=True); past
            them it is given up as with `timeout`, and retried as `max-duration`. By default that of the settings.
        timeout: seconds that a call of `prepare`, and one of a handler, may take; then it is given up, what it wrote
            is rolled back, and its record is retried as `handler-timeout`. None for no limit.
        start: where a new group begins in the partitions that its sources have then: at the `earliest` record that is
            kept, or behind the `latest`. What comes later (partitions, sources, retries) is read from its beginning.
        ordering: whether events of one key keep their order when one of them is retried: those behind it wait for it,
            as `key` has it, or go on (`none`). Groups with transactional=True, or per_key over 1, have none.
        on_dead_letter: what becomes of the events behind one of their key that is dead-lettered: they go on
            (`release`), or wait until an operator has redriven or discarded it (`hold`; needs the database).
        attempts: how often a transient failure is tried in the process, a second apart, before its record goes to a
            retry tier; each try is the same `ctx.attempt`.
        projection: the tables that the group makes of its log, to be made anew from offset zero; see `Projection`.
        rules: what failures are, by the class of the exception: a class of the taxonomy, or a function that makes a
            failure of the exception, or returns None: `{QuotaError: Throttled}`. See `offsetzero.retry.classify`.

    Raises:
        ConfigurationError: for a name that cannot be a group's, or what does not go together.
    """

    def __init__(
        self,
        name: str,
        *,
        step: bool = False,
        topics: Sequence[str] | None = None,
        tiers: Sequence[Tier] | None = None,
        concurrency: int | None = None,
        database: bool | None = None,
        transactional: bool = False,
        per_key: int = 1,
        per_tenant: int | None = None,
        max_duration: float | None = None,
        timeout: float | None = None,
        start: Literal["earliest", "latest"] = "earliest",
        ordering: Literal["key", "none"] = "key",
        on_dead_letter: Literal["release", "hold"] = "release",
        attempts: int = 1,
        projection: Projection | None = None,
        rules: Rules = NO_RULES,
    ) -> None:
        if not _NAME.fullmatch(name):
            raise ConfigurationError(
                f"group {name!r}: a name starts with a letter and has only a-z, 0-9, _ and -, 100 at most"
            )
        check_limits(
            name,
            concurrency=concurrency,
            per_key=per_key,
            per_tenant=per_tenant,
            max_duration=max_duration,
            timeout=timeout,
            attempts=attempts,
        )
        check_rules(name, rules)
        if transactional:
            check_transactional(
                name,
                database=database,
                step=step,
                concurrency=concurrency,
                per_key=per_key if per_key > 1 else None,
                per_tenant=per_tenant,
                timeout=timeout,
            )
        database = not transactional if database is None else database
        if step and not database:
            raise ConfigurationError(f"group {name}: step=True needs the database, where runs and their steps are")
        if max_duration is not None and not step:
            raise ConfigurationError(
                f"group {name}: max_duration is that of a step of runs; give timeout, or step=True"
            )
        if start not in ("earliest", "latest"):
            raise ConfigurationError(f"group {name}: start is {start!r}; it must be 'earliest' or 'latest'")
        if ordering not in ("key", "none"):
            raise ConfigurationError(f"group {name}: ordering is {ordering!r}; it must be 'key' or 'none'")
        if on_dead_letter not in ("release", "hold"):
            raise ConfigurationError(
                f"group {name}: on_dead_letter is {on_dead_letter!r}; it must be 'release' or 'hold'"
            )
        if on_dead_letter == "hold" and not (database and ordering == "key" and per_key == 1):
            raise ConfigurationError(
                f"group {name}: on_dead_letter='hold' needs the database, where what is held is kept, and the order of"
                " keys: it does not go with database=False, transactional=True, ordering='none' or per_key over 1"
            )
        if projection is not None:
            check_projection(name, database=database, start=start)
        if start == "latest" and not database:
            raise ConfigurationError(
                f"group {name}: start='latest' needs the database: only a row there tells a new group from one whose"
                " committed offsets have expired"
            )
        self.name = name
        self.step = step
        self.database = database
        self.transactional = transactional
        self.per_key = per_key
        self.per_tenant = per_tenant
        self.timeout = timeout
        self._longest = max_duration
        self.start = start
        self.ordering = ordering
        self.on_dead_letter = on_dead_letter
        self.projection = projection
        self.rules = dict(rules)
        self.routes: dict[str, Route] = {}
        self.tombstones: Route | None = None
        self.batched: Batch | None = None
        self.on_setup: Setup | None = None
        self._topics = list(topics) if topics is not None else None
        self._attempts = attempts
        self._policy = RetryPolicy(tiers, attempts=attempts, in_order=transactional) if tiers is not None else None
        self._concurrency = concurrency
        self._prepares: dict[str, Callable[[Any, Context], Any]] = {}

    def handler(self, event: type[E]) -> Callable[[Handler[E]], Handler[E]]:
        """Declare what handles events of a type: a sync or async function of the event and a `Context`.

        It runs in one transaction with the row that says the event is handled, so its effect in PostgreSQL
        happens once, whatever is delivered twice.

        Raises:
            ConfigurationError: the type has a handler already, or what is declared cannot work; with its place.
        """
        check_event(self.name, "handler", event)

        def declare(function: Handler[E]) -> Handler[E]:
            check_function(self.name, "handler", function, ("event", "ctx"), sync=self.transactional)
            if self.batched is not None:
                raise ConfigurationError(f"group {self.name}: a batch handler is the only handler of its group")
            if event.event_type in self.routes:
                raise ConfigurationError(f"group {self.name}: two handlers for {event.event_type}")
            self.routes[event.event_type] = Route.to(self._limited(function), self._prepares.get(event.event_type))
            return function

        return declare

    def prepare(self, event: type[E]) -> Callable[[Prepare[E]], Prepare[E]]:
        """Declare the slow part of a type's handling, called before the transaction is opened.

        What it returns is the handler's `ctx.prepared`. It may run again after a crash: give
        `ctx.idempotency_key` to systems that it calls.

        Raises:
            ConfigurationError: as `handler`.
        """
        check_event(self.name, "prepare", event)

        def declare(function: Prepare[E]) -> Prepare[E]:
            check_function(self.name, "prepare", function, ("event", "ctx"), sync=self.transactional)
            if event.event_type in self._prepares:
                raise ConfigurationError(f"group {self.name}: two prepare functions for {event.event_type}")
            prepare = self._prepares[event.event_type] = self._limited(function)
            if (route := self.routes.get(event.event_type)) is not None:
                self.routes[event.event_type] = Route.to(route.handler, prepare)
            return function

        return declare

    def batch(self, *events: type[Event], size: int = 500) -> Callable[[BatchHandler], BatchHandler]:
        """Declare what handles many events in one call and one transaction: a sync function of a list of events
        and a `BatchContext`.

        The list holds events of all the declared types, those of a key in their order; an event that was handled
        before is not in it. When the function raises, the transaction is rolled back and the list is halved, in
        order, until only the failing events are left: they are retried, the others have their effect once.

        Args:
            events: the types; what else the topics carry is ignored, as are tombstones.
            size: events in one call at most; fewer when no more are there.

        Raises:
            ConfigurationError: what is declared cannot work; with its place.
        """
        if not events:
            raise ConfigurationError(
                f"group {self.name}: batch: name event types: @{self.name}.batch(DocumentUploaded)"
            )
        for event in events:
            check_event(self.name, "batch", event)

        def declare(function: BatchHandler) -> BatchHandler:
            check_function(self.name, "batch", function, ("events", "ctx"), sync=True)
            check_limits(self.name, size=size)
            if self.batched is not None or self.routes or self.tombstones:
                raise ConfigurationError(f"group {self.name}: a batch handler is the only handler of its group")
            if self.step or self.per_key > 1 or self.per_tenant is not None or self.transactional:
                raise ConfigurationError(
                    f"group {self.name}: batch does not go with step, per_key, per_tenant and transactional, made for"
                    " single events"
                )
            self.batched = Batch(self._limited(function), size)
            self.routes = {event.event_type: Route.to(function) for event in events}
            return function

        return declare

    def setup(self, function: Setup) -> Setup:
        """Declare what a process does before its first record, such as making the group's own tables.

        A sync function of a psycopg connection, called in one transaction; two processes never run it at once.
        """
        check_function(self.name, "setup", function, ("connection",), sync=True)
        if not self.database:
            without = "transactional=True" if self.transactional else "database=False"
            raise ConfigurationError(f"group {self.name}: setup is given a database connection, and {without}")
        self.on_setup = function
        return function

    def tombstone(self, function: Tombstone) -> Tombstone:
        """Declare what handles records without data: a function of the key, as text, and a `Context`."""
        check_function(self.name, "tombstone", function, ("key", "ctx"), sync=self.transactional)
        if self.batched is not None:
            raise ConfigurationError(f"group {self.name}: a batch handler is the only handler of its group")
        self.tombstones = Route.to(self._limited(function))
        return function

    def topics(self) -> list[str]:
        """The source topics, as the catalogue names them.

        Raises:
            ConfigurationError: nothing is handled, or a part is missing.
        """
        problems = []
        if not self.routes:
            problems.append(f"group {self.name}: no handler is declared")
        problems += [
            f"group {self.name}: prepare for {event_type} has no handler"
            for event_type in self._prepares
            if event_type not in self.routes
        ]
        if problems:
            raise ConfigurationError(problems)
        return self._topics if self._topics is not None else sources_of(list(self.routes))

    def policy(self, settings: Settings) -> RetryPolicy:
        """The retry tiers of this group."""
        retry = settings.retry_of(self.name)
        return self._policy or RetryPolicy.from_settings(retry, self._attempts, in_order=self.transactional)

    def concurrency(self, settings: Settings) -> int:
        """How many records one process handles at once."""
        return 1 if self.transactional else self._concurrency or settings.groups.concurrency

    def limits(self, settings: Settings) -> list[Limit]:
        """How many records of a kind one process handles at once: of a tenant, and of the lane for backfill.

        A quarter of what it can do stays free of any one tenant in groups with a step, and the lane for backfill has a
        quarter, unless the settings say otherwise. Groups that take many in one call have no such limits.
        """
        if self.batched is not None or self.transactional:
            return []
        concurrency, found = self.concurrency(settings), []
        per_tenant = self.per_tenant or settings.groups.per_tenant
        if per_tenant is None and self.step:
            per_tenant = max(1, concurrency * 3 // 4)
        if per_tenant is not None:
            found.append(Limit("tenant", per_tenant, tenant_of))
        if len({is_bulk(topic) for topic in self.topics()}) > 1:
            found.append(Limit(BULK, settings.groups.bulk_concurrency or max(1, concurrency // 4), bulk_of))
        return found

    def longest(self, settings: Settings) -> float | None:
        """Seconds that the work on an event may take; None for a group that is no step of runs."""
        return (self._longest or settings.steps.max_duration) if self.step else None

    @property
    def keeps_order(self) -> bool:
        """Whether the order of a key survives retries."""
        return self.ordering == "key" and self.per_key == 1 and not self.transactional

    @property
    def is_async(self) -> bool:
        """Whether any of its functions is async: then an event loop runs them all."""
        routes = [*self.routes.values(), *([self.tombstones] if self.tombstones else [])]
        return any(route.is_async for route in routes) or any(map(is_async, self._prepares.values()))

    def _limited(self, function: Callable[..., Any]) -> Callable[..., Any]:
        return limited(function) if self.step or self.timeout is not None else function
