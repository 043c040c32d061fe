"""One record from reading to its outcome: the same steps for sync and async handlers."""

import asyncio
from collections.abc import Callable
from dataclasses import dataclass

from offsetzero import logs
from offsetzero.clock import Clock
from offsetzero.consumers.record import Record
from offsetzero.consumers.working.atwork import raise_if_abandoned
from offsetzero.consumers.working.calls import Call, CallReader, LooksUp
from offsetzero.consumers.working.effects import Effects, MakeContext, Threads, route_of
from offsetzero.consumers.working.run import Ending, Run
from offsetzero.consumers.working.settle import Settler
from offsetzero.consumers.working.tally import Tally
from offsetzero.consumers.working.transaction import HandlerRaised, NotBeside, NotNow, checked
from offsetzero.consumers.working.waiting import Waiting
from offsetzero.errors import SchemasUnavailable
from offsetzero.store.leases import Fenced


@dataclass(frozen=True, slots=True)
class Parts:
    """What every kind of handling is made of.

    Attributes:
        reader: reads records.
        effects: makes effects safe.
        settler: carries out what follows from a failure.
        waiting: of those that wait for a provider.
        context: makes what a handler is given.
        clock: for how long handlings take.
        tally: one worker's counts.
    """

    reader: CallReader
    effects: Effects
    settler: Settler
    waiting: Waiting
    context: MakeContext
    clock: Clock
    tally: Tally


class RecordHandling:
    """Has the parts at hand. Whatever a handler does ends as an outcome; what is raised is an error of ours."""

    def __init__(self, parts: Parts) -> None:
        self._reader = parts.reader
        self._effects = parts.effects
        self._settler = parts.settler
        self._waiting = parts.waiting
        self._context = parts.context
        self._clock = parts.clock
        self._tally = parts.tally


class Handling(RecordHandling):
    """Works on records, one by one, for one worker of a group whose functions are all sync.

    Args:
        parts: see there.
        release: gives others what is left in a run; called before something that waits for the broker.
    """

    def __init__(self, parts: Parts, release: Callable[[Run], None] = lambda _run: None) -> None:
        super().__init__(parts)
        self._release = release

    def work(self, run: Run) -> None:
        """Work on the records of a run, one after the other.

        Raises:
            Abandoned: one took too long, and this run is another worker's by now.
        """
        try:
            while (record := run.begin()) is not None:
                run.begun_at = self._clock.monotonic()
                if run.at_work is not None:
                    run.at_work.begin(run.begun_at)
                run.ended.append((record, self._work(record, run.begun_at, run)))
        finally:
            self._tally.tell()

    def _work(self, record: Record, started: float, run: Run | None = None) -> Ending:
        if self._waiting.must_wait(record):
            return Ending.AGAIN
        try:
            call = self._reader.read(record)
        except SchemasUnavailable as error:
            return self._settler.not_now(record, error)
        token = logs.SUBJECT.set(call)
        ending = Ending.LEFT
        try:
            ending = self._end(call, started, run)
            return ending
        finally:
            logs.SUBJECT.reset(token)
            if record.is_suspect:
                self._effects.leave(call, ending)

    def _end(self, call: Call, started: float, run: Run | None) -> Ending:
        if call.record.failed is not None:
            self._tally.read(call.label)
            return self._settler.end(call, call.record.failed)
        try:
            verdict = self._effects.begin(call)
            if verdict is not None:
                self._tally.passed(call.label, verdict)
                return Ending.DONE
            if not call.record.owned.active:  # `begin` may have waited for the database
                return Ending.LEFT
            verdict = self._handle(call)
        except BaseException as error:
            self._tally.read(call.label)
            raise_if_abandoned(error)
            if run is not None:
                self._release(run)
            return failed(call, error, self._effects, self._settler, self._waiting)
        self._tally.handled(call.label, verdict, self._clock.monotonic() - started)
        return Ending.DONE

    def _handle(self, call: Call) -> str:
        ctx = self._context(call)
        prepare = route_of(call).prepare
        if prepare is not None:
            if not call.record.prepared:
                call.record.entered = True
                call.record.keep(checked(prepare(call.event, ctx)))
            ctx.prepared = call.record.kept
        return self._effects.perform(call, ctx)


class AsyncHandling(RecordHandling):
    """Works on records for a group that has an async function; sync ones run in a thread.

    Args:
        parts: see there.
        threads: where sync functions run.
        begins_in_loop: whether the effects' `begin` asks nobody.
    """

    def __init__(self, parts: Parts, threads: Threads, *, begins_in_loop: bool) -> None:
        super().__init__(parts)
        self._threads = threads
        self._begins_in_loop = begins_in_loop

    async def work(self, record: Record) -> Ending:
        """Work on one record; raises as `Handling.work`."""
        if self._waiting.must_wait(record):
            return Ending.AGAIN
        try:
            try:
                call = self._reader.read(record)
            except LooksUp:  # a writer schema must be looked up in the log: not in the loop, where all would wait
                call = await self._threads.run(self._reader.read, record)
        except SchemasUnavailable as error:
            return self._settler.not_now(record, error)
        logs.SUBJECT.set(call)  # of this task alone
        if record.failed is not None:
            self._tally.read(call.label)
            ending = await self._threads.run(self._settler.end, call, record.failed)
        else:
            ending = await self._work(call)
        if record.is_suspect:
            await self._threads.run(self._effects.leave, call, ending)
        return ending

    async def _work(self, call: Call) -> Ending:
        started = self._clock.monotonic()
        try:
            if self._begins_in_loop:
                verdict = self._effects.begin(call)
            else:
                verdict = await self._threads.run(self._effects.begin, call)
            if verdict is not None:
                self._tally.passed(call.label, verdict)
                return Ending.DONE
            if not call.record.owned.active:
                return Ending.LEFT
            verdict = await self._handle(call)
        except BaseException as error:
            raise_if_abandoned(error)
            task = asyncio.current_task()
            if task is not None and task.cancelling():  # the runtime ends: whatever came of that counts no attempt
                raise asyncio.CancelledError from error
            return await self._failed(call, error)
        self._tally.handled(call.label, verdict, self._clock.monotonic() - started)
        return Ending.DONE

    def tell(self) -> None:
        """Tell the metrics what was counted."""
        self._tally.tell()

    async def _handle(self, call: Call) -> str:
        ctx = self._context(call)
        prepare = route_of(call).prepare
        if prepare is not None:
            if not call.record.prepared:
                call.record.entered = True
                call.record.keep(await self._threads.call(prepare, call.event, ctx))
            ctx.prepared = call.record.kept
        return await self._effects.perform_async(call, ctx)

    async def _failed(self, call: Call, error: BaseException) -> Ending:
        self._tally.read(call.label)
        return await self._threads.run(failed, call, error, self._effects, self._settler, self._waiting)


def failed(call: Call, error: BaseException, effects: Effects, settler: Settler, waiting: Waiting) -> Ending:
    """What follows from an error: the same attempt again when it is not the record's fault, else settling."""
    if isinstance(error, NotBeside):
        return Ending.ALONE
    if call.record.provider is not None:  # whatever the handler has made of that
        return waiting.show(call)
    if isinstance(error, Fenced):
        return settler.fenced(call, error)
    cause = error.__cause__ or error if isinstance(error, HandlerRaised) else error
    if isinstance(error, NotNow) or effects.is_away(cause, call.record):
        return settler.not_now(call.record, cause)
    return settler.end(call, cause)
