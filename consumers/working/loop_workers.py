"""The event loop of groups that have an async function."""

import asyncio
import contextlib
import functools
import threading
from collections.abc import Callable, Coroutine
from concurrent.futures import ThreadPoolExecutor
from typing import Any

from offsetzero.clock import Clock
from offsetzero.consumers.record import Record
from offsetzero.consumers.resources import Spawn
from offsetzero.consumers.working.atwork import AT_WORK, Abandoned, AtWork, line_of_thread
from offsetzero.consumers.working.dispatch import Dispatcher
from offsetzero.consumers.working.handling import AsyncHandling
from offsetzero.consumers.working.run import Ending, Run
from offsetzero.consumers.working.workers import JOIN_SECONDS, Late

LATE_SECONDS = 5.0  # for a cancelled function to end by itself, before its connection is cut


class LoopWorkers:
    """One event loop in a thread of its own; as many tasks as records are worked on at once.

    Args:
        dispatcher: where records come from.
        handling: works on one record.
        count: records at once.
        threads: for the sync parts; shut down by `join`.
        opened: awaited in the loop before the first record (opens the async pool).
        closed: awaited in the loop after the last one.
        crashed: as for `ThreadWorkers`.
        clock: when a function was entered.
        spawn: makes the thread.
        resize: has the pools, and `threads`, hold so many more: a function that was given up keeps one. Awaited in the
            loop.
    """

    def __init__(
        self,
        dispatcher: Dispatcher,
        handling: AsyncHandling,
        count: int,
        threads: ThreadPoolExecutor,
        opened: Callable[[], Coroutine[Any, Any, None]],
        closed: Callable[[], Coroutine[Any, Any, None]],
        crashed: Callable[[BaseException], None],
        clock: Clock,
        spawn: Spawn,
        resize: Callable[[int], Coroutine[Any, Any, None]],
    ) -> None:
        self._dispatcher = dispatcher
        self._handling = handling
        self._count = count
        self._threads = threads
        self._opened = opened
        self._closed = closed
        self._crashed = crashed
        self._clock = clock
        self._late = Late(lambda by: self._call(lambda: self._begin(resize(by))))
        self._resizing: set[asyncio.Task[None]] = set()
        self._asked: float | None = None  # when the loop was asked for a sign of life
        self._loop = asyncio.new_event_loop()
        self._stop = asyncio.Event()
        self._tasks: set[asyncio.Task[None]] = set()
        self._given_up: set[asyncio.Task[None]] = set()
        self._ended: list[Run] = []
        self._pumping = False
        self._ident = 0
        self._spawn = spawn
        self._thread = spawn(self._run, "handlers")

    def start(self) -> None:
        self._thread.start()

    def wake(self) -> None:
        if not self._pumping:
            self._pumping = True  # a second call before the first is served would find nothing more
            self._call(self._pump)

    def replace(self, run: Run) -> None:
        assert run.at_work is not None  # noqa: S101 - it was given up
        self._late.add(run.at_work)
        self._call(functools.partial(self._give_up, run.at_work))
        self._spawn(run.at_work.cut, "cut").start()  # not one of the executor's threads: all may be held up

    def late(self) -> int:
        return self._late.count()

    def held_up(self) -> tuple[float, str | None]:
        now = self._clock.monotonic()
        if self._asked is None:
            self._asked = now
            self._call(self._answer)
        seconds = now - self._asked if self._asked is not None else 0.0
        return seconds, line_of_thread(self._ident) if seconds > 1 and self._ident else None

    def join(self) -> None:
        self._call(self._stop.set)
        self._thread.join(JOIN_SECONDS)
        self._threads.shutdown(wait=False, cancel_futures=True)

    def _call(self, function: Callable[[], object]) -> None:
        with contextlib.suppress(RuntimeError):  # the loop is closed: nothing is to be done any more
            self._loop.call_soon_threadsafe(function)

    def _begin(self, resizing: Coroutine[Any, Any, None]) -> None:
        task = self._loop.create_task(resizing)
        self._resizing.add(task)  # a loop does not keep its tasks: the collector may end one that waits
        task.add_done_callback(self._resizing.discard)

    def _answer(self) -> None:
        self._asked = None

    def _run(self) -> None:
        self._ident = threading.get_ident()
        asyncio.set_event_loop(self._loop)
        self._loop.set_default_executor(self._threads)  # for asyncio.to_thread in handlers: one owner for all threads
        try:
            self._loop.run_until_complete(self._main())
        except BaseException as error:
            self._crashed(error)
        finally:
            self._loop.close()

    async def _main(self) -> None:
        await self._opened()
        self._pump()
        await self._stop.wait()
        for task in (ending := self._tasks | self._given_up):
            task.cancel()
        if ending:
            await asyncio.wait(ending, timeout=JOIN_SECONDS / 2)  # one may not heed it
        self._dispatcher.end(self._ended)
        self._handling.tell()
        await self._closed()

    def _pump(self) -> None:
        self._pumping = False
        while len(self._tasks) < self._count and (run := self._dispatcher.take_nowait()) is not None:
            if (record := run.begin()) is None:
                self._end(run)
                continue
            task = self._loop.create_task(self._one(run, record))
            run.at_work = AtWork(self._clock, task)
            self._tasks.add(task)
            task.add_done_callback(self._task_ended)

    async def _one(self, run: Run, record: Record) -> None:
        AT_WORK.set(run.at_work)
        try:
            ending = await self._handling.work(record)
        except Abandoned:
            return  # another task has the record
        except BaseException:
            self._left(run, record, Ending.LEFT)
            raise
        self._left(run, record, ending)

    def _give_up(self, at_work: AtWork) -> None:
        task = at_work.task
        if task not in self._tasks or not at_work.is_entered:
            return  # it ends by itself, and must not be disturbed while it gives its connection back
        self._tasks.discard(task)
        self._given_up.add(task)
        task.cancel()
        self._loop.call_later(LATE_SECONDS, at_work.cut_async)
        self._pump()

    def _left(self, run: Run, record: Record, ending: Ending) -> None:
        run.ended.append((record, ending))
        run.running = ()
        self._end(run)

    def _end(self, run: Run) -> None:
        if not self._ended:
            self._loop.call_soon(self._flush)  # with all that end in the same round of the loop
        self._ended.append(run)

    def _flush(self) -> None:
        ended, self._ended = self._ended, []
        self._dispatcher.end(ended)
        self._handling.tell()

    def _task_ended(self, task: asyncio.Task[None]) -> None:
        self._tasks.discard(task)
        self._given_up.discard(task)
        if not task.cancelled() and (error := task.exception()) is not None:
            self._crashed(error)
        self._pump()  # here its place is free; one that was given up has nobody else who says so
