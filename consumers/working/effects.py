"""How an effect is made safe: in one transaction with the outcome of its event, or at least once."""

import asyncio
import contextvars
import uuid
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any, Protocol, TypeAlias, TypeVar

from confluent_kafka import KafkaError

from offsetzero.consumers.context import BatchContext, Context
from offsetzero.consumers.group import Batch, Route
from offsetzero.consumers.record import Record
from offsetzero.consumers.working.calls import Call
from offsetzero.consumers.working.run import Ending
from offsetzero.consumers.working.transaction import HandlerRaised, NotNow, checked, is_async
from offsetzero.errors import PublishError
from offsetzero.producers import records
from offsetzero.producers.delivery import Delivery
from offsetzero.producers.log import LogProducer
from offsetzero.producers.records import OutgoingRecord
from offsetzero.producers.schema_publisher import SchemaPublisher
from offsetzero.schemas.codec import Codec
from offsetzero.settings import Settings
from offsetzero.store.processed import Outcome
from offsetzero.topics.names import Names

T = TypeVar("T")
_UNSOUND = frozenset(
    str(KafkaError(code).name())
    for code in (
        KafkaError.MSG_SIZE_TOO_LARGE,
        KafkaError.RECORD_LIST_TOO_LARGE,
        KafkaError.INVALID_RECORD,
        KafkaError.INVALID_TIMESTAMP,
    )
)
MakeContext: TypeAlias = Callable[[Call], Context]
"""Makes what a handler is given."""


class Effects(Protocol):
    """The part of a handling in which kinds of groups differ."""

    def begin(self, call: Call) -> str | None:
        """Before slow work: None to go on, otherwise what the event turned out to be.

        Raises:
            Failure: that of a record which could not be read.
            NotNow: the database cannot tell.
            NotBeside: a member has died of it, perhaps: it is to be begun again once nothing else is in work.
        """
        ...

    def leave(self, call: Call, ending: Ending) -> None:
        """After the work on a suspect, `begin` having been called before it: how that ended, if it came to that."""
        ...

    def perform(self, call: Call, ctx: Context) -> str:
        """Call the handler; the effect is safe when this returns its outcome.

        Raises:
            HandlerRaised: with what the handler raised.
            NotNow: it cannot be made safe now, and has not happened.
        """
        ...

    async def perform_async(self, call: Call, ctx: Context) -> str:
        """The same in an event loop."""
        ...

    def perform_batch(self, calls: Sequence[Call], handler: Batch, context: MakeContext) -> list[str]:
        """Call a batch handler with those that were not handled before; returns the outcome of each.

        Raises:
            HandlerRaised, NotNow: as `perform`, for all of them.
        """
        ...

    def is_away(self, error: BaseException, record: Record | None) -> bool:
        """Whether a failure is that of the group's own database, in `prepare` too: no attempt is consumed.

        Args:
            error: the failure.
            record: whose it is; None for that of many, which halving tells apart when the database is well.
        """
        ...


class Threads:
    """Runs sync functions from an event loop.

    Args:
        executor: their threads.
    """

    def __init__(self, executor: ThreadPoolExecutor) -> None:
        self._executor = executor

    async def run(self, function: Callable[..., T], *arguments: Any) -> T:
        """Call it in a thread, with the log context of the caller."""
        context = contextvars.copy_context()
        loop = asyncio.get_running_loop()

        def call() -> T:
            try:
                return context.run(function, *arguments)
            except StopIteration as error:  # asyncio's futures refuse it, and would never end
                raise RuntimeError("StopIteration") from error

        return await loop.run_in_executor(self._executor, call)

    async def call(self, function: Callable[..., Any], *arguments: Any) -> Any:
        """Await an async function; call a sync one in a thread."""
        if is_async(function):
            return await function(*arguments)
        return checked(await self.run(function, *arguments))


class AtLeastOnce:
    """For groups without a database: a record is done when its handler has returned and what it published is in the
    log. A crash between the two calls the handler again, with the same idempotency key.

    Args:
        producer: appends what handlers publish.
        names: topic names on the cluster.
        settings: of this process.
        threads: of async groups, for their sync functions.
    """

    def __init__(self, producer: LogProducer, names: Names, settings: Settings, threads: Threads | None = None) -> None:
        self._producer = producer
        self._names = names
        self._settings = settings
        self._threads = threads
        self._codec = Codec()
        self._schemas = SchemaPublisher(producer, names)

    def begin(self, call: Call) -> str | None:
        if call.failure is not None:
            raise call.failure
        return None if call.route is not None else "ignored"

    def leave(self, call: Call, ending: Ending) -> None:
        """Nothing: what ends a process is found out with the help of a database."""

    def perform(self, call: Call, ctx: Context) -> str:
        try:
            result = route_of(call).handler(argument_of(call), ctx)
            if result is not None:
                checked(result)
        except BaseException as error:
            raise HandlerRaised from error
        if ctx.outgoing:
            for delivery in self.send(call, ctx):
                _await_answer(delivery)
        return Outcome.APPLIED.value

    async def perform_async(self, call: Call, ctx: Context) -> str:
        route = route_of(call)
        try:
            if route.is_async:
                await route.handler(argument_of(call), ctx)
            else:
                assert self._threads is not None  # noqa: S101 - the runtime gives them to every async group
                checked(await self._threads.run(route.handler, argument_of(call), ctx))
        except asyncio.CancelledError:
            raise
        except BaseException as error:
            raise HandlerRaised from error
        if ctx.outgoing:
            assert self._threads is not None  # noqa: S101
            for delivery in await self._threads.run(self.send, call, ctx):
                try:
                    await delivery
                except PublishError as error:
                    raise _not_taken(error) from error
        return Outcome.APPLIED.value

    def perform_batch(self, calls: Sequence[Call], handler: Batch, context: MakeContext) -> list[str]:
        ctx = BatchContext(lambda: [context(call) for call in calls], self._settings)
        try:
            checked(handler.handler([call.event for call in calls], ctx))
        except BaseException as error:
            raise HandlerRaised from error
        sent = [
            delivery for call, one in zip(calls, ctx.used, strict=bool(ctx.used)) for delivery in self.send(call, one)
        ]
        for delivery in sent:
            _await_answer(delivery)
        return [Outcome.APPLIED.value] * len(calls)

    def is_away(self, error: BaseException, record: Record | None) -> bool:
        return False

    def send(self, call: Call, ctx: Context) -> list[Delivery]:
        """Append what the handler published; the same ids each time that this event is handled.

        Raises:
            HandlerRaised: what it published cannot be an event.
            NotNow: the log takes nothing now.
        """
        try:
            return [
                self._producer.produce(self._names.topic(one.topic), key=one.key, value=one.value, headers=one.headers)
                for one in self.records(call, ctx)
            ]
        except PublishError as error:
            raise NotNow from error

    def records(self, call: Call, ctx: Context) -> list[OutgoingRecord]:
        """What the handler published, all of it sound; writer schemas that nobody knows yet are in the log by then.

        Raises:
            HandlerRaised: what it published cannot be an event.
            NotNow: the log takes no schema now.
        """
        made = []
        for number, (event, given) in enumerate(ctx.outgoing):
            attributes: Any = call.cause_of({"event_id": _derived_id(call, number), **given}, self._settings.source)
            try:
                made.append(records.build(self._codec, event, attributes))
            except Exception as error:
                raise HandlerRaised from error
        try:
            for record in made:
                if record.schema is not None:
                    self._schemas.ensure(record.schema.fingerprint, record.schema.text)
        except PublishError as error:
            raise NotNow from error
        return made


def route_of(call: Call) -> Route:
    """What handles it: `begin` has answered for those without."""
    assert call.route is not None  # noqa: S101
    return call.route


def argument_of(call: Call) -> Any:
    """A handler takes the event; that of tombstones takes the key."""
    return call.event if call.event is not None else call.key


def is_unsound(error: PublishError) -> bool:
    """Whether no topic would take what a handler has published: then the handler has failed."""
    return error.code in _UNSOUND


def _await_answer(delivery: Delivery) -> None:
    try:
        delivery.result()
    except PublishError as error:
        raise _not_taken(error) from error


def _not_taken(error: PublishError) -> Exception:
    return HandlerRaised() if is_unsound(error) else NotNow()


def _derived_id(call: Call, number: int) -> uuid.UUID:
    """A UUIDv7 that follows from the event in work: readers of the output see a repeat as one."""
    random = uuid.uuid5(uuid.NAMESPACE_OID, f"{call.idempotency_key}|{number}").int & ((1 << 80) - 1)
    value = (call.hop.timestamp_ms & ((1 << 48) - 1)) << 80 | random
    value = value & ~(0xF << 76) | 7 << 76
    return uuid.UUID(int=value & ~(0x3 << 62) | 2 << 62)
