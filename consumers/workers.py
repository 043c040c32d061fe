"""The threads that run handlers, and the event loop of groups with async ones."""

import asyncio
from collections.abc import Callable, Coroutine
from concurrent.futures import ThreadPoolExecutor
from typing import Any, Protocol

from offsetzero.clock import Clock
from offsetzero.consumers.batches import BatchHandling
from offsetzero.consumers.dispatch import Dispatcher
from offsetzero.consumers.handling import AsyncHandling, Handling
from offsetzero.consumers.record import Record
from offsetzero.consumers.resources import Spawn
from offsetzero.consumers.run import Ending, Run

JOIN_SECONDS = 2.0
MAX_ABANDONED = 100
"""Threads given up in handlers that do not return, before the group stops: each holds memory and a connection."""


class Workers(Protocol):
    """Take records from the dispatcher and work on them until it is closed."""

    def start(self) -> None:
        """Start the threads; called once, by the runtime."""
        ...

    def wake(self) -> None:
        """A record may have become runnable; any thread may call this, and it does not block."""
        ...

    def replace(self) -> None:
        """A worker was given up: have another one in its place. The polling thread calls this."""
        ...

    def join(self) -> None:
        """Wait, for a bounded time, until the threads have ended; after `Dispatcher.close`."""
        ...


class ThreadWorkers:
    """One thread for each run that is worked on at once.

    Args:
        dispatcher: where records come from.
        handling: makes what works on records: one for each thread.
        count: threads.
        crashed: told of an error that no rule explains: the process must not go on as if nothing had happened.
        clock: when a record was begun.
        spawn: makes threads.
    """

    def __init__(
        self,
        dispatcher: Dispatcher,
        handling: Callable[[], Handling | BatchHandling],
        count: int,
        crashed: Callable[[BaseException], None],
        clock: Clock,
        spawn: Spawn,
    ) -> None:
        self._dispatcher = dispatcher
        self._handling = handling
        self._crashed = crashed
        self._clock = clock
        self._spawn = spawn
        self._threads = [spawn(self._run, f"handler-{number}") for number in range(count)]

    def start(self) -> None:
        for thread in self._threads:
            thread.start()

    def wake(self) -> None:
        """Nothing to do: the threads wait inside the dispatcher."""

    def replace(self) -> None:
        thread = self._spawn(self._run, f"handler-{len(self._threads)}")
        self._threads.append(thread)
        thread.start()

    def join(self) -> None:
        for thread in self._threads:
            thread.join(JOIN_SECONDS / len(self._threads))

    def _run(self) -> None:
        dispatcher, handling = self._dispatcher, self._handling()
        try:
            while (run := dispatcher.take()) is not None:
                try:
                    handling.work(run)
                finally:
                    for record in run.running:  # an error of ours: nothing is taken for done
                        run.ended.append((record, Ending.LEFT))
                    dispatcher.end((run,))
                if run.abandoned:
                    return  # another thread has this one's place
        except BaseException as error:
            self._crashed(error)


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
        spawn: makes the thread.
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
        spawn: Spawn,
    ) -> None:
        self._dispatcher = dispatcher
        self._handling = handling
        self._count = count
        self._threads = threads
        self._opened = opened
        self._closed = closed
        self._crashed = crashed
        self._loop = asyncio.new_event_loop()
        self._stop = asyncio.Event()
        self._tasks: set[asyncio.Task[None]] = set()
        self._ended: list[Run] = []
        self._pumping = False
        self._thread = spawn(self._run, "handlers")

    def start(self) -> None:
        self._thread.start()

    def wake(self) -> None:
        if not self._pumping and not self._loop.is_closed():
            self._pumping = True  # a second call before the first is served would find nothing more
            self._loop.call_soon_threadsafe(self._pump)

    def replace(self) -> None:
        """Nothing to do: a task that was given up was cancelled, and its place is free."""

    def join(self) -> None:
        if not self._loop.is_closed():
            self._loop.call_soon_threadsafe(self._stop.set)
        self._thread.join(JOIN_SECONDS)
        self._threads.shutdown(wait=False, cancel_futures=True)

    def _run(self) -> None:
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
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
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
            self._tasks.add(task)
            task.add_done_callback(self._task_ended)

    async def _one(self, run: Run, record: Record) -> None:
        ending = Ending.LEFT
        try:
            ending = await self._handling.work(record)
        finally:
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
        self._pump()

    def _task_ended(self, task: asyncio.Task[None]) -> None:
        self._tasks.discard(task)
        if not task.cancelled() and (error := task.exception()) is not None:
            self._crashed(error)
