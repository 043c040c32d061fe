"""The threads that run handlers, and what all kinds of workers have in common."""

import itertools
from collections.abc import Callable
from typing import Protocol

from offsetzero.clock import Clock
from offsetzero.consumers.resources import Spawn, Thread
from offsetzero.consumers.working.atwork import AT_WORK, Abandoned, AtWork
from offsetzero.consumers.working.batches import BatchHandling
from offsetzero.consumers.working.dispatch import Dispatcher
from offsetzero.consumers.working.handling import Handling
from offsetzero.consumers.working.run import Ending, Run

JOIN_SECONDS = 2.0


class Workers(Protocol):
    """Take records from the dispatcher and work on them until it is closed."""

    def start(self) -> None:
        """Start the threads; called once, by the runtime."""
        ...

    def wake(self) -> None:
        """A record may have become runnable; any thread may call this, and it does not block."""
        ...

    def replace(self, run: Run) -> None:
        """A run was abandoned: cut its worker off, and have another in its place. The polling thread calls this."""
        ...

    def late(self) -> int:
        """How many functions were given up and have not ended; called by the polling thread about once a second."""
        ...

    def held_up(self) -> tuple[float, str | None]:
        """Seconds for which no record could be begun or ended, and what is executed; called like `late`."""
        ...

    def join(self) -> None:
        """Wait, for a bounded time, until the threads have ended; after `Dispatcher.close`."""
        ...


class Late:
    """Functions that were given up, until they end. Belongs to the polling thread.

    Args:
        resize: told how many there are more.
    """

    def __init__(self, resize: Callable[[int], None]) -> None:
        self._resize = resize
        self._at_work: list[AtWork] = []

    def add(self, at_work: AtWork) -> None:
        """One more."""
        self._at_work.append(at_work)
        self._resize(1)

    def count(self) -> int:
        """How many have not ended."""
        before = len(self._at_work)
        self._at_work = [one for one in self._at_work if one.is_entered]
        if ended := before - len(self._at_work):
            self._resize(-ended)
        return len(self._at_work)


class ThreadWorkers:
    """One thread for each run that is worked on at once.

    Args:
        dispatcher: where records come from.
        handling: makes what works on records: one for each thread.
        count: threads.
        crashed: told of an error that no rule explains: the process must not go on as if nothing had happened.
        clock: when a record was begun.
        spawn: makes threads.
        resize: has the pool hold so many more connections: a function that was given up keeps one.
    """

    def __init__(
        self,
        dispatcher: Dispatcher,
        handling: Callable[[], Handling | BatchHandling],
        count: int,
        crashed: Callable[[BaseException], None],
        clock: Clock,
        spawn: Spawn,
        resize: Callable[[int], None] = lambda _by: None,
    ) -> None:
        self._dispatcher = dispatcher
        self._handling = handling
        self._crashed = crashed
        self._clock = clock
        self._spawn = spawn
        self._late = Late(resize)
        self._numbers = itertools.count()
        self._threads: dict[int, Thread] = {}
        for _ in range(count):
            self._add()

    def start(self) -> None:
        for thread in self._threads.values():
            thread.start()

    def wake(self) -> None:
        """Nothing to do: the threads wait inside the dispatcher."""

    def replace(self, run: Run) -> None:
        at_work = run.at_work
        assert at_work is not None  # noqa: S101 - it was given up

        self._late.add(at_work)
        self._add(at_work.cut).start()

    def late(self) -> int:
        return self._late.count()

    def held_up(self) -> tuple[float, str | None]:
        return 0.0, None

    def join(self) -> None:
        threads = list(self._threads.values())
        for thread in threads:
            thread.join(JOIN_SECONDS / len(threads))

    def _add(self, before: Callable[[], None] = lambda: None) -> Thread:
        number = next(self._numbers)

        def run() -> None:
            before()
            self._run()
            self._threads.pop(number, None)

        thread = self._threads[number] = self._spawn(run, f"handler-{number}")
        return thread

    def _run(self) -> None:
        dispatcher, handling = self._dispatcher, self._handling()
        at_work = AtWork(self._clock)
        AT_WORK.set(at_work)
        try:
            while (run := dispatcher.take()) is not None:
                run.at_work = at_work
                try:
                    handling.work(run)
                except Abandoned:
                    return  # another thread has this one's place, and the run
                except BaseException:  # an error of ours: nothing is taken for done
                    run.ended.extend((record, Ending.LEFT) for record in run.running)
                    dispatcher.end((run,))
                    raise
                dispatcher.end((run,))
        except BaseException as error:
            self._crashed(error)
