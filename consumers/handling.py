"""One record from reading to its outcome: the same steps for sync and async handlers."""

import asyncio
import contextvars
import hashlib
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager
from enum import Enum, auto
from typing import Any, TypeVar

import psycopg
from psycopg_pool import PoolTimeout
from structlog.contextvars import bound_contextvars

from offsetzero import logs, metrics
from offsetzero.consumers import steps
from offsetzero.consumers.calls import Call, CallReader, LooksUp
from offsetzero.consumers.context import Context, Source
from offsetzero.consumers.group import ConsumerGroup, Route
from offsetzero.consumers.record import Record
from offsetzero.consumers.settle import Settler
from offsetzero.consumers.transaction import HandlerRaised, NotNow, checked, in_handler, is_async, own_database
from offsetzero.errors import SchemasUnavailable
from offsetzero.producers import outbox
from offsetzero.retry.classify import classify
from offsetzero.retry.failures import Failure
from offsetzero.settings import Settings
from offsetzero.store import processed
from offsetzero.store.availability import is_away
from offsetzero.store.database import AsyncPool, Pool
from offsetzero.store.processed import Outcome
from offsetzero.store.script import Script, arun, run

T = TypeVar("T")
PROBE_SECONDS = 5.0  # how long our own database may take to show that a failure was another's
MAX_BROKEN = 3  # times that a record may lose its connection while the database is well, before it is at fault
log = logs.get(__name__)


class Ending(Enum):
    """What the dispatcher is to do with a record that was worked on."""

    DONE = auto()
    LEFT = auto()  # its outcome is not safe and this process will not make it so: it will be read again
    AGAIN = auto()  # the group's database, or the topic `schemas`, is away: the same attempt, a little later


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
        """Work on a record of a group whose functions are all sync.

        Whatever a handler does ends as an outcome of its record; what is raised here is an error of ours.
        """
        try:
            call = self._read(record)
        except SchemasUnavailable as error:
            return self._not_now(record, error)
        with self._log_context(call):
            if record.failed is not None:
                return self._settle(call, record.failed)
            try:
                verdict = self._begin(call)
                if verdict is None:
                    verdict = self._handle(call)
            except BaseException as error:
                return self._failed(call, error)
            return self._told(call, verdict)

    async def work_async(self, record: Record) -> Ending:
        """Work on a record of a group that has an async function; sync ones run in a thread."""
        try:
            call = await self._read_in_loop(record)
        except SchemasUnavailable as error:
            return self._not_now(record, error)
        with self._log_context(call):
            if record.failed is not None:
                return await self._thread(self._settle, call, record.failed)
            try:
                verdict = await self._thread(self._begin, call)
                if verdict is None:
                    verdict = await self._handle_async(call)
            except asyncio.CancelledError as error:
                task = asyncio.current_task()
                if task is not None and task.cancelling():
                    raise  # the runtime ends; one that a handler raised by itself is a failure like others
                return await self._thread(self._failed, call, error)
            except BaseException as error:
                return await self._thread(self._failed, call, error)
            return self._told(call, verdict)

    def _handle(self, call: Call) -> str:
        route = _route(call)
        ctx = self._context(call)
        with metrics.HANDLER_SECONDS.labels(self._group.name, call.label).time():
            if route.prepare is not None and not call.record.prepared:
                call.record.keep(checked(route.prepare(call.event, ctx)))
            ctx.prepared = call.record.kept
            return self._transact(call, ctx)

    async def _handle_async(self, call: Call) -> str:
        route = _route(call)
        ctx = self._context(call)
        with metrics.HANDLER_SECONDS.labels(self._group.name, call.label).time():
            if route.prepare is not None and not call.record.prepared:
                call.record.keep(await self._call(route.prepare, call.event, ctx))
            ctx.prepared = call.record.kept
            if is_async(route.handler):
                return await self._transact_async(call, ctx)
            return await self._thread(self._transact, call, ctx)

    def _read(self, record: Record) -> Call:
        call = self._reader.read(record)
        metrics.EVENTS_CONSUMED.labels(self._group.name, call.label).inc()
        return call

    async def _read_in_loop(self, record: Record) -> Call:
        try:
            return self._read(record)
        except LooksUp:  # a writer schema must be looked up in the log: not in the loop, where all handlers would wait
            return await self._thread(self._read, record)

    def _begin(self, call: Call) -> str | None:
        """Before slow work: None to go on, otherwise what the event turned out to be."""
        if call.failure is None and call.route is None:
            return "ignored"
        if call.failure is None and not self._group.step and (call.route is None or call.route.prepare is None):
            return None  # the claim inside the transaction is enough

        def script() -> Script[str | None]:
            if (yield from processed.find(call.identity)) is not None:
                return "duplicate"
            if self._group.step and not (yield from steps.start(call, self._group.name)):
                yield from processed.claim(call.identity, Outcome.CANCELLED)
                return Outcome.CANCELLED.value
            return None

        with own_database(), self._pool.connection() as connection:
            verdict = run(connection, script())
        if verdict is None and call.failure is not None:
            raise call.failure
        return verdict

    def _failed(self, call: Call, error: BaseException) -> Ending:
        cause = error.__cause__ or error if isinstance(error, HandlerRaised) else error
        if isinstance(error, NotNow) or self._is_away(cause, call.record):
            return self._not_now(call.record, cause)
        return self._settle(call, classify(cause))

    def _settle(self, call: Call, failure: Failure) -> Ending:
        try:
            return Ending.DONE if self._settler.settle(call, failure) else Ending.LEFT
        except NotNow as error:
            return self._not_now(call.record, error)
        except Exception:  # an error of ours: it stops its partition, with a line a second, rather than the group
            log.exception("settling failed", record=str(call.record))
            return Ending.AGAIN

    def _transact(self, call: Call, ctx: Context) -> str:
        with own_database(), self._pool.connection() as connection, connection.transaction():
            if not run(connection, processed.claim(call.identity, Outcome.APPLIED)):
                return "duplicate"
            with in_handler(connection, ctx):
                checked(_route(call).handler(_argument(call), ctx))
            run(connection, self._complete(call, ctx))
        return Outcome.APPLIED.value

    async def _transact_async(self, call: Call, ctx: Context) -> str:
        assert self._async_pool is not None  # noqa: S101 - the runtime makes one for every async group
        with own_database():
            async with self._async_pool.connection() as connection, connection.transaction():
                if not await arun(connection, processed.claim(call.identity, Outcome.APPLIED)):
                    return "duplicate"
                with in_handler(connection, ctx):
                    await _route(call).handler(_argument(call), ctx)
                await arun(connection, self._complete(call, ctx))
        return Outcome.APPLIED.value

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

    def _is_away(self, error: BaseException, record: Record) -> bool:
        """Whether the failure is that of the group's own database, in `prepare` too: no attempt is consumed."""
        if not isinstance(error, psycopg.Error | PoolTimeout) or not is_away(error):
            return False
        try:  # a handler may use other databases, or end its own connection: ask ours
            with self._pool.connection(timeout=PROBE_SECONDS) as connection:
                connection.execute("SELECT 1")
        except Exception as probed:
            return is_away(probed)
        record.broken += 1  # ours is well again: an outage that just ended, or a record that breaks its connection
        return record.broken <= MAX_BROKEN

    def _not_now(self, record: Record, error: BaseException) -> Ending:
        log.warning("database or broker away", record=str(record), error=str(error.__cause__ or error))
        return Ending.AGAIN

    async def _call(self, function: Callable[..., Any], *arguments: Any) -> Any:
        if is_async(function):
            return await function(*arguments)
        return checked(await self._thread(function, *arguments))

    async def _thread(self, function: Callable[..., T], *arguments: Any) -> T:
        context = contextvars.copy_context()  # so that log lines of the thread carry the record's ids
        loop = asyncio.get_running_loop()

        def call() -> T:
            try:
                return context.run(function, *arguments)
            except StopIteration as error:  # asyncio's futures refuse it, and would never end
                raise RuntimeError("StopIteration") from error

        return await loop.run_in_executor(self._threads, call)


def _route(call: Call) -> Route:
    assert call.route is not None  # noqa: S101 - _begin has answered for those without one
    return call.route


def _argument(call: Call) -> Any:
    """A handler takes the event; that of tombstones takes the key."""
    if call.event is not None:
        return call.event
    key = call.record.key
    return key.decode(errors="backslashreplace") if key is not None else None
