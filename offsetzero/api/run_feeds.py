"""What is new of the runs that this process shows: one statement reads for all streams, twice a second.

Nothing is notified: PostgreSQL lets one transaction with a NOTIFY commit at a time in all its databases, its write to
the disk included (`PreCommit_Notify` in its async.c), and every group changes the steps of runs in its transactions.
"""

import asyncio
from collections import Counter, deque
from collections.abc import AsyncIterator, Callable, Coroutine, Iterable, Iterator
from contextlib import asynccontextmanager, contextmanager
from typing import Any
from uuid import UUID

from offsetzero import logs, metrics
from offsetzero.store import run_events
from offsetzero.store.database import AsyncPool
from offsetzero.store.run_events import RunEvent
from offsetzero.store.script import arun

LOOK_SECONDS = 0.5
_WELL_SECONDS = 15.0  # after which the same trouble is another one, and said once more
_AGAIN_SECONDS = 1.0  # between two tries of what has failed
_TRIM_SECONDS = 60.0
_AT_ONCE = 1_000  # runs that one statement reads

log = logs.get(__name__)


class Feed:
    """The newest events of one run, and who waits for more.

    Args:
        newest: number of the last event that is known; those after it will come.
    """

    def __init__(self, newest: int) -> None:
        self.newest = newest
        self.watchers = 0
        self._events: deque[RunEvent] = deque(maxlen=run_events.KEPT)
        self._changed = asyncio.Event()

    def add(self, events: Iterable[RunEvent]) -> None:
        """Take further events in, and wake who waits."""
        for event in events:
            if event.number != self.newest + 1:  # what lies between is for the database to tell
                self._events.clear()
            self._events.append(event)
            self.newest = event.number
        self.wake()

    def wake(self) -> None:
        """Let whoever waits look again."""
        self._changed.set()
        self._changed = asyncio.Event()

    def after(self, number: int) -> list[RunEvent] | None:
        """The events after one, none of them missing; None where that is not known here."""
        events = [event for event in self._events if event.number > number]
        if not events:
            return [] if number >= self.newest else None
        return events if events[0].number == number + 1 else None

    async def wait(self, seconds: float) -> bool:
        """Wait for news; false when there were none for so long."""
        try:
            async with asyncio.timeout(seconds):
                await self._changed.wait()
        except TimeoutError:
            return False
        return True


class RunFeeds:
    """The feeds of all runs that are watched here.

    Args:
        pool: to read events with.
        keep_seconds: how long events are kept.
        most: streams that a tenant may have open: each holds a connection of this process.
    """

    def __init__(self, pool: AsyncPool, keep_seconds: float, most: int) -> None:
        self._pool = pool
        self._most = most
        self._streams: Counter[str] = Counter()  # by tenant
        self._keep_seconds = keep_seconds
        self._feeds: dict[str, Feed] = {}
        self.is_ending = False

    @asynccontextmanager
    async def running(self) -> AsyncIterator["RunFeeds"]:
        """Read and trim meanwhile."""
        works = (self._read, self._trim)
        tasks = [asyncio.create_task(self._forever(work), name=f"run-feeds{work.__name__}") for work in works]
        try:
            yield self
        finally:
            self.end()
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)

    def end(self) -> None:
        """Have all streams end, once they have told what is known."""
        self.is_ending = True
        for feed in self._feeds.values():
            feed.wake()

    def is_full(self, tenant_id: str) -> bool:
        """Whether a tenant has as many streams open as it may."""
        return self._streams[tenant_id] >= self._most

    @contextmanager
    def watch(self, tenant_id: str, run_id: UUID, newest: int) -> Iterator[Feed]:
        """Watch a run, from one of its events on.

        Args:
            tenant_id: whose run it is.
            run_id: which.
            newest: number of the last event that is known; what was committed since is read with the next look.
        """
        name = str(run_id)
        feed = self._feeds.setdefault(name, Feed(newest))
        feed.watchers += 1
        self._streams[tenant_id] += 1
        metrics.HTTP_STREAMS.inc()
        try:
            yield feed
        finally:
            metrics.HTTP_STREAMS.dec()
            self._streams[tenant_id] -= 1
            if not self._streams[tenant_id]:
                del self._streams[tenant_id]
            feed.watchers -= 1
            if not feed.watchers:
                del self._feeds[name]

    async def _forever(self, work: Callable[[], Coroutine[Any, Any, None]]) -> None:
        said, now = "", asyncio.get_running_loop().time
        while True:
            begun = now()
            try:
                await work()
            except Exception as error:  # whatever it is: the streams of this process live on this task
                if repr(error) != said or now() - begun > _WELL_SECONDS:  # else nothing went well since
                    said = repr(error)
                    log.warning("run events cannot be followed now", doing=work.__name__.strip("_"), error=said)
            await asyncio.sleep(_AGAIN_SECONDS)

    async def _read(self) -> None:
        while True:
            await asyncio.sleep(LOOK_SECONDS)
            names = list(self._feeds)
            for begin in range(0, len(names), _AT_ONCE):
                await self._publish(names[begin : begin + _AT_ONCE])

    async def _publish(self, names: list[str]) -> None:
        known = [(UUID(name), self._feeds[name].newest) for name in names if name in self._feeds]
        async with self._pool.connection() as connection:
            found = await arun(connection, run_events.news(known))
        for run_id, events in found.items():
            if feed := self._feeds.get(str(run_id)):
                feed.add(event for event in events if event.number > feed.newest)

    async def _trim(self) -> None:
        while True:
            async with self._pool.connection() as connection:
                more = await arun(connection, run_events.trim(self._keep_seconds))
            if not more:
                await asyncio.sleep(_TRIM_SECONDS)
