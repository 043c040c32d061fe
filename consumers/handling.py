"""One record from reading to its outcome: the same steps for sync and async handlers."""

import asyncio
import contextvars
import hashlib
import inspect
from collections.abc import Callable, Generator
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager, contextmanager
from enum import Enum, auto
from typing import Any, TypeVar

import psycopg
from psycopg.pq import TransactionStatus
from psycopg_pool import PoolTimeout
from structlog.contextvars import bound_contextvars

from offsetzero import logs, metrics
from offsetzero.consumers import steps
from offsetzero.consumers.calls import Call, CallReader
from offsetzero.consumers.context import Context, Source
from offsetzero.consumers.group import ConsumerGroup
from offsetzero.consumers.record import Record
from offsetzero.consumers.settle import DATABASE_AWAY, Settler
from offsetzero.errors import SchemasUnavailable
from offsetzero.producers import outbox
from offsetzero.retry.classify import classify
from offsetzero.retry.failures import Bug
from offsetzero.settings import Settings
from offsetzero.store import processed
from offsetzero.store.database import AsyncPool, Pool
from offsetzero.store.processed import Outcome
from offsetzero.store.script import Script, arun, run

T = TypeVar("T")
PROBE_SECONDS = 5.0  # how long our own database may take to show that a failure was another's
log = logs.get(__name__)


class Ending(Enum):
    """What the dispatcher is to do with a record that was worked on."""

    DONE = auto()
    LEFT = auto()  # its outcome is not safe and this process will not make it so: it will be read again
    AGAIN = auto()  # the group's database, or the topic `schemas`, is away: the same attempt, a little later


class DatabaseAway(Exception):
    """The group's own database did not answer: no attempt is consumed."""


class Handling:
    """Works on records, for one group.

    Args:
        group: its handlers are called.
        settings: given to handlers.
        reader: reads records.
        settler: carries out what follows from a failure.
        pool: connections for sync functions.
        async_pool: connections for async handlers.
        threads: runs the sync parts of an async group.
    """

    def __init__(
        self,
        group: ConsumerGroup,
        settings: Settings,
        reader: CallReader,
        settler: Settler,
        pool: Pool,
        async_pool: AsyncPool | None = None,
        threads: ThreadPoolExecutor | None = None,
    ) -> None:
        self._group = group
        self._settings = settings
        self._reader = reader
        self._settler = settler
        self._pool = pool
        self._async_pool = async_pool
        self._threads = threads
        self._log = logs.get(f"offsetzero.groups.{group.name}")

    def work(self, record: Record) -> Ending:
        """Work on a record of a group whose functions are all sync."""
        try:
            call = self._read(record)
        except SchemasUnavailable as error:
            return self._not_now(record, error)
        with self._log_context(call):
            if call.failure is not None:
                return _ending(self._settler.settle(call, call.failure))
            if call.route is None:
                return self._told(call, "ignored")
            ctx = self._context(call)
            try:
                with metrics.HANDLER_SECONDS.labels(self._group.name, call.label).time():
                    verdict = self._begin(call)
                    if verdict is None:
                        if call.route.prepare is not None:
                            ctx.prepared = call.route.prepare(call.event, ctx)
                        verdict = self._transact(call, ctx)
            except Exception as error:
                cause = _cause(error)
                if self._is_away(cause):
                    return self._not_now(record, cause)
                return _ending(self._settler.settle(call, classify(cause)))
            return self._told(call, verdict)

    async def work_async(self, record: Record) -> Ending:
        """Work on a record of a group that has an async function; sync ones run in a thread."""
        try:
            call = self._read(record)
        except SchemasUnavailable as error:
            return self._not_now(record, error)
        with self._log_context(call):
            if call.failure is not None:
                return _ending(await self._thread(self._settler.settle, call, call.failure))
            if call.route is None:
                return self._told(call, "ignored")
            ctx = self._context(call)
            try:
                with metrics.HANDLER_SECONDS.labels(self._group.name, call.label).time():
                    verdict = await self._thread(self._begin, call)
                    if verdict is None:
                        if call.route.prepare is not None:
                            ctx.prepared = await self._call(call.route.prepare, call.event, ctx)
                        if inspect.iscoroutinefunction(call.route.handler):
                            verdict = await self._transact_async(call, ctx)
                        else:
                            verdict = await self._thread(self._transact, call, ctx)
            except Exception as error:
                cause = _cause(error)
                if await self._thread(self._is_away, cause):
                    return self._not_now(record, cause)
                return _ending(await self._thread(self._settler.settle, call, classify(cause)))
            return self._told(call, verdict)

    def _read(self, record: Record) -> Call:
        call = self._reader.read(record)
        metrics.EVENTS_CONSUMED.labels(self._group.name, call.label).inc()
        return call

    def _begin(self, call: Call) -> str | None:
        """Before slow work: None to go on, otherwise what the event turned out to be."""
        if not self._group.step and (call.route is None or call.route.prepare is None):
            return None  # the claim inside the transaction is enough

        def script() -> Script[str | None]:
            if (yield from processed.find(call.identity)) is not None:
                return "duplicate"
            if self._group.step and not (yield from steps.start(call, self._group.name)):
                yield from processed.claim(call.identity, Outcome.CANCELLED)
                return Outcome.CANCELLED.value
            return None

        with _own_database(), self._pool.connection() as connection:
            return run(connection, script())

    def _transact(self, call: Call, ctx: Context) -> str:
        with _own_database(), self._pool.connection() as connection, connection.transaction():
            if not run(connection, processed.claim(call.identity, Outcome.APPLIED)):
                return "duplicate"
            with _in_handler(connection, ctx):
                self._handler(call)(_argument(call), ctx)
            run(connection, self._complete(call, ctx))
        return Outcome.APPLIED.value

    async def _transact_async(self, call: Call, ctx: Context) -> str:
        assert self._async_pool is not None  # noqa: S101 - the runtime makes one for every async group
        with _own_database():
            async with self._async_pool.connection() as connection, connection.transaction():
                if not await arun(connection, processed.claim(call.identity, Outcome.APPLIED)):
                    return "duplicate"
                with _in_handler(connection, ctx):
                    await self._handler(call)(_argument(call), ctx)
                await arun(connection, self._complete(call, ctx))
        return Outcome.APPLIED.value

    def _handler(self, call: Call) -> Callable[[Any, Context], Any]:
        assert call.route is not None  # noqa: S101 - work() has looked
        return call.route.handler

    def _complete(self, call: Call, ctx: Context) -> Script[None]:
        """After the handler, in its transaction."""
        for event, given in ctx.outgoing:
            metadata = {
                "source": self._settings.source,
                "run_id": call.meta.run_id,
                "correlation_id": call.meta.correlation_id,
                "causation_id": call.meta.id,
                **given,
            }
            yield from outbox.record(event, **metadata)
        if self._group.step:
            yield from steps.succeed(call, self._group.name, ctx.warnings, self._settings.source)

    def _context(self, call: Call) -> Context:
        identity, record = call.identity, call.record
        key = f"{identity.group}|{identity.generation}|{identity.source}|{identity.event_id}|{identity.redrive_no}"
        origin = call.hop.origin
        return Context(
            meta=call.meta,
            record=Source(origin.topic, origin.partition, origin.offset, record.key, call.hop.timestamp_ms),
            attempt=call.hop.attempt,
            idempotency_key=hashlib.sha256(key.encode()).hexdigest()[:32],
            log=self._log,
            settings=self._settings,
            pool=self._pool,
        )

    def _log_context(self, call: Call) -> AbstractContextManager[None]:
        """On every line that is logged while the record is worked on, whoever logs it."""
        return bound_contextvars(
            group=self._group.name,
            event_id=call.meta.id,
            run_id=call.meta.run_id,
            attempt=call.hop.attempt,
        )

    def _told(self, call: Call, outcome: str) -> Ending:
        metrics.EVENTS_HANDLED.labels(self._group.name, call.label, outcome).inc()
        log.debug("handled", record=str(call.record), event_type=call.meta.type, outcome=outcome)
        return Ending.DONE

    def _is_away(self, error: BaseException) -> bool:
        """Whether the failure is that of the group's own database, in `prepare` too: no attempt is consumed."""
        if isinstance(error, DatabaseAway | PoolTimeout):
            return True
        if not isinstance(error, DATABASE_AWAY):
            return False
        try:  # a handler may use other databases: ask our own
            with self._pool.connection(timeout=PROBE_SECONDS) as connection:
                connection.execute("SELECT 1")
        except DATABASE_AWAY:
            return True
        return False

    def _not_now(self, record: Record, error: BaseException) -> Ending:
        log.warning("database or broker away", record=str(record), error=str(error.__cause__ or error))
        return Ending.AGAIN

    async def _call(self, function: Callable[..., Any], *arguments: Any) -> Any:
        if inspect.iscoroutinefunction(function):
            return await function(*arguments)
        return await self._thread(function, *arguments)

    async def _thread(self, function: Callable[..., T], *arguments: Any) -> T:
        context = contextvars.copy_context()  # so that log lines of the thread carry the record's ids
        loop = asyncio.get_running_loop()
        return await loop.run_in_executor(self._threads, lambda: context.run(function, *arguments))


class HandlerRaised(Exception):
    """The handler failed; what it raised is the cause."""


@contextmanager
def _own_database() -> Generator[None]:
    try:
        yield
    except DATABASE_AWAY as error:
        raise DatabaseAway from error


@contextmanager
def _in_handler(connection: psycopg.Connection[Any] | psycopg.AsyncConnection[Any], ctx: Context) -> Generator[None]:
    """Give the handler the transaction, and see that it leaves it in a state that can be committed."""
    ctx.connection = connection
    try:
        yield
    except Exception as error:
        if connection.closed:
            raise DatabaseAway from error
        raise HandlerRaised from error
    finally:
        ctx.connection = None
    if connection.info.transaction_status is not TransactionStatus.INTRANS:
        # COMMIT of a failed transaction is a ROLLBACK that reports no error: the effect would be lost.
        raise HandlerRaised from Bug("transaction-failed", "the handler went on after a failed statement")


def _cause(error: Exception) -> BaseException:
    return error.__cause__ or error if isinstance(error, HandlerRaised) else error


def _argument(call: Call) -> Any:
    """A handler takes the event; that of tombstones takes the key."""
    if call.event is not None:
        return call.event
    key = call.record.key
    return key.decode(errors="backslashreplace") if key is not None else None


def _ending(settled: bool) -> Ending:
    return Ending.DONE if settled else Ending.LEFT
