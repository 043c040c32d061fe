"""The threads that run handlers, and the event loop of groups with async ones."""

import asyncio
import threading
from collections.abc import Callable, Coroutine
from concurrent.futures import ThreadPoolExecutor
from typing import Any, Protocol

from offsetzero.consumers.dispatch import Dispatcher
from offsetzero.consumers.handling import Ending, Handling
from offsetzero.consumers.record import Record

AGAIN_SECONDS = 1.0  # between tries of one record while the group's database is away
JOIN_SECONDS = 2.0


class Workers(Protocol):
    """Take records from the dispatcher and work on them until it is closed."""

    def start(self) -> None:
        """Start the threads; called once, by the runtime."""
        ...

    def wake(self) -> None:
        """A record may have become runnable; any thread may call this, and it does not block."""
        ...

    def join(self) -> None:
        """Wait, for a bounded time, until the threads have ended; after `Dispatcher.close`."""
        ...


def end(dispatcher: Dispatcher, record: Record, ending: Ending) -> None:
    """Tell the dispatcher how the work on a record ended."""
    if ending is Ending.AGAIN:
        dispatcher.postpone(record, AGAIN_SECONDS)
    else:
        dispatcher.finish(record, done=ending is Ending.DONE)


class ThreadWorkers:
    """One thread for each record that is worked on at once.

    Args:
        dispatcher: where records come from.
        handling: works on one record.
        count: threads.
        crashed: told of an error that no rule explains: the process must not go on as if nothing had happened.
    """

    def __init__(
        self, dispatcher: Dispatcher, handling: Handling, count: int, crashed: Callable[[BaseException], None]
    ) -> None:
        self._dispatcher = dispatcher
        self._handling = handling
        self._crashed = crashed
        # Daemons: a handler that never returns must not keep the process from ending.
        self._threads = [
            threading.Thread(target=self._run, name=f"handler-{number}", daemon=True) for number in range(count)
        ]

    def start(self) -> None:
        for thread in self._threads:
            thread.start()

    def wake(self) -> None:
        """Nothing to do: the threads wait inside the dispatcher."""

    def join(self) -> None:
        for thread in self._threads:
            thread.join(JOIN_SECONDS / len(self._threads))

    def _run(self) -> None:
        try:
            while (record := self._dispatcher.take()) is not None:
                ending = Ending.LEFT
                try:
                    ending = self._handling.work(record)
                finally:
                    end(self._dispatcher, record, ending)
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
    """

    def __init__(
        self,
        dispatcher: Dispatcher,
        handling: Handling,
        count: int,
        threads: ThreadPoolExecutor,
        opened: Callable[[], Coroutine[Any, Any, None]],
        closed: Callable[[], Coroutine[Any, Any, None]],
        crashed: Callable[[BaseException], None],
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
        self._thread = threading.Thread(target=self._run, name="handlers", daemon=True)

    def start(self) -> None:
        self._thread.start()

    def wake(self) -> None:
        if not self._loop.is_closed():
            self._loop.call_soon_threadsafe(self._pump)

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
        await self._closed()

    def _pump(self) -> None:
        while len(self._tasks) < self._count and (record := self._dispatcher.take_nowait()) is not None:
            task = self._loop.create_task(self._one(record))
            self._tasks.add(task)
            task.add_done_callback(self._ended)

    async def _one(self, record: Record) -> None:
        ending = Ending.LEFT
        try:
            ending = await self._handling.work_async(record)
        finally:
            end(self._dispatcher, record, ending)

    def _ended(self, task: asyncio.Task[None]) -> None:
        self._tasks.discard(task)
        if not task.cancelled() and (error := task.exception()) is not None:
            self._crashed(error)
        self._pump()
