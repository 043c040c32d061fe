"""Database groups: the effect, the event's outcome and what is published commit in one transaction."""

import secrets
from collections.abc import Sequence

import psycopg
from psycopg_pool import PoolTimeout

from offsetzero.consumers.context import BatchContext, Context
from offsetzero.consumers.group import Batch, ConsumerGroup
from offsetzero.consumers.record import Record
from offsetzero.consumers.working import steps
from offsetzero.consumers.working.calls import Call
from offsetzero.consumers.working.effects import MakeContext, Threads, argument_of, route_of
from offsetzero.consumers.working.holding import HeldUp, claim, look_at_hold
from offsetzero.consumers.working.owed import reopen, withhold
from offsetzero.consumers.working.run import Ending
from offsetzero.consumers.working.standing import Fence
from offsetzero.consumers.working.steps import Lessee
from offsetzero.consumers.working.transaction import NotBeside, checked, in_handler, own_database
from offsetzero.producers import outbox
from offsetzero.retry.failures import Cancelled, CrashLoop
from offsetzero.settings import Settings
from offsetzero.store import processed, withheld
from offsetzero.store.availability import is_away
from offsetzero.store.crash_marks import close_mark, give_back, open_mark
from offsetzero.store.database import AsyncPool, Pool, committing
from offsetzero.store.generations import Standing
from offsetzero.store.outbox import OutboxRow
from offsetzero.store.processed import Outcome
from offsetzero.store.script import Script, arun, run

PROBE_SECONDS = 5.0  # how long our own database may take to show that a failure was another's
MAX_CRASHES = 5  # of members in a row that died while they worked on one event
MAX_BROKEN = 3  # times that a record may lose its connection while the database is well, before it is at fault


class DatabaseEffects:
    """One transaction for each event.

    Args:
        group: the declaration.
        settings: of this process.
        pool: connections for sync functions.
        async_pool: connections for async handlers.
        threads: of async groups, for their sync functions.
        fence: what its transactions have besides.
        lessee: as the group's step of runs is leased; None for a group that is no step.
    """

    def __init__(
        self,
        group: ConsumerGroup,
        settings: Settings,
        pool: Pool,
        async_pool: AsyncPool | None = None,
        threads: Threads | None = None,
        fence: Fence | None = None,
        lessee: Lessee | None = None,
    ) -> None:
        self._group = group
        self._fence = fence or Fence()
        self._lessee = lessee
        self._settings = settings
        self._pool = pool
        self._async_pool = async_pool
        self._threads = threads
        self._member = secrets.token_hex(8)

    def begin(self, call: Call) -> str | None:
        if call.failure is None and call.route is None:
            return "ignored"
        if call.record.is_suspect and call.failure is None and not self._mark(call) and not call.record.held:
            return "duplicate"
        lessee = self._lessee
        if call.failure is None and lessee is None and (call.route is None or call.route.prepare is None):
            return None  # the claim inside the transaction is enough

        def script() -> Script[str | None]:
            standing = yield from self._fence.enter()
            if (yield from processed.find(call.identity)) is not None:
                yield from look_at_hold(self._group, call, new=False)
                return "duplicate"
            if lessee is not None and standing.is_read and not (yield from steps.start(call, lessee)):
                yield from claim(self._group, call, Outcome.CANCELLED, silent=False)
                cancelled = steps.end_of(call, Outcome.CANCELLED, Cancelled("cancelled"))
                yield from steps.end(cancelled, self._group.name, self._settings.source)
                return Outcome.CANCELLED.value
            return None

        with own_database(), self._pool.connection() as connection:
            verdict = run(connection, script())
        if verdict is None and call.failure is not None:
            raise call.failure
        return verdict

    def leave(self, call: Call, ending: Ending) -> None:
        record = call.record
        if record.marked is None:
            return
        survived = record.entered or ending is Ending.DONE
        begun, member = call.identity, self._member
        try:
            with committing(self._pool) as connection:
                run(connection, close_mark(begun) if survived else give_back(begun, member, record.marked))
        except (psycopg.Error, PoolTimeout) as error:  # a mark of this member is no crash, whoever finds an outcome
            if not is_away(error):
                raise
        else:
            if survived:
                record.clear()
            elif not record.marked:  # else its count is there still, until it has an outcome
                record.marked = None

    def _mark(self, call: Call) -> bool:
        """Have it known that this member begins with a suspect; False for one that has ended before.

        Raises:
            NotBeside: one has died while it worked on it, among others perhaps.
            CrashLoop: too many have died of it.
        """
        record = call.record
        with own_database(), committing(self._pool) as connection:
            mark = run(connection, open_mark(call.identity, self._member, alone=record.lone))
        if mark is None:
            return False
        if not mark.is_own:
            record.lone = True
            raise NotBeside
        record.marked = mark.crashes
        if mark.crashes >= MAX_CRASHES:
            raise CrashLoop("crash-loop", f"the process died {mark.crashes} times while this event was worked on")
        return True

    def perform(self, call: Call, ctx: Context) -> str:
        with own_database(), self._pool.connection() as connection, connection.transaction():
            standing = run(connection, self._fence.enter())
            if not run(connection, claim(self._group, call, Outcome.APPLIED, silent=not standing.is_read)):
                return "duplicate"
            call.record.entered = True
            with in_handler(connection, ctx):
                checked(route_of(call).handler(argument_of(call), ctx))
            run(connection, self._complete(call, ctx, standing))
            run(connection, self._fence.leave([call.record]))
        call.record.clear()
        return Outcome.APPLIED.value

    async def perform_async(self, call: Call, ctx: Context) -> str:
        route = route_of(call)
        if not route.is_async:
            assert self._threads is not None  # noqa: S101 - the runtime gives them to every async group
            return await self._threads.run(self.perform, call, ctx)
        assert self._async_pool is not None  # noqa: S101
        with own_database():
            async with self._async_pool.connection() as connection, connection.transaction():
                standing = await arun(connection, self._fence.enter())
                silent = not standing.is_read
                if not await arun(connection, claim(self._group, call, Outcome.APPLIED, silent=silent)):
                    return "duplicate"
                call.record.entered = True
                with in_handler(connection, ctx):
                    await route.handler(argument_of(call), ctx)
                await arun(connection, self._complete(call, ctx, standing))
                await arun(connection, self._fence.leave([call.record]))
        call.record.clear()
        return Outcome.APPLIED.value

    def perform_batch(self, calls: Sequence[Call], handler: Batch, context: MakeContext) -> list[str]:
        with own_database(), self._pool.connection() as connection, connection.transaction():
            standing = run(connection, self._fence.enter())
            identities = [call.identity for call in calls]
            new = run(connection, processed.claim_all(identities, Outcome.APPLIED, silent=not standing.is_read))
            for call, is_new in zip(calls, new, strict=True):
                knew = call.record.held
                if knew or not is_new:
                    run(connection, look_at_hold(self._group, call, new=is_new))
                if call.record.held > knew and len(calls) > 1:
                    raise HeldUp(f"{call.record} was dead-lettered by another member: its key is held")
            fresh = [call for call, is_new in zip(calls, new, strict=True) if is_new]
            if fresh:
                ctx = BatchContext(lambda: [context(call) for call in fresh], self._settings)
                fresh[0].record.entered = True  # a suspect is alone in its call
                with in_handler(connection, ctx):
                    checked(handler.handler([call.event for call in fresh], ctx))
                for call, one in zip(fresh, ctx.used, strict=bool(ctx.used)):
                    if one.outgoing or call.record.is_suspect:
                        run(connection, self._complete(call, one, standing))
            run(connection, self._fence.leave([call.record for call in calls]))
        return [Outcome.APPLIED.value if is_new else "duplicate" for is_new in new]

    def _complete(self, call: Call, ctx: Context, standing: Standing) -> Script[None]:
        """After the handler, in its transaction: what it published, its step of the run, and that it killed nobody.

        Raises:
            Fenced: its step is another's by now.
        """
        group, source, lessee = self._group, self._settings.source, self._lessee
        step = steps.end_of(call, Outcome.APPLIED, warnings=ctx.warnings) if lessee is not None else None
        if standing.is_read:
            others = standing.others
            if ctx.outgoing and not (others and (yield from withheld.is_done(call.identity, others))):
                for event, given in ctx.outgoing:
                    yield from outbox.record(event, **call.cause_of(given, source))
            if step is not None and others and call.hop.hop:  # it waited while another generation was read
                yield from reopen(group, [(call.identity, step.run_id)], standing)
            if lessee is not None:
                yield from steps.end(step, group.name, source, (yield from steps.hold(call, lessee)))
        else:

            def rows() -> list[OutboxRow]:
                return [outbox.row(event, **call.cause_of(given, source)) for event, given in ctx.outgoing]

            yield from withhold(call.identity, step, standing, rows if ctx.outgoing else None)
        if call.record.marked is not None:
            yield from close_mark(call.identity)

    def is_away(self, error: BaseException, record: Record | None) -> bool:
        if not isinstance(error, psycopg.Error | PoolTimeout) or not is_away(error):
            return False
        try:  # a handler may use other databases, or end its own connection: ask ours
            with self._pool.connection(timeout=PROBE_SECONDS):
                pass  # there is one to be had
            self._pool.ask(PROBE_SECONDS)
        except Exception as probed:
            return is_away(probed)
        if record is None:
            return False
        record.broken += 1  # ours is well again: an outage that just ended, or a record that breaks its connection
        return record.broken <= MAX_BROKEN
