"""The thread of a projection's member that looks at what others decide: is its generation still read, does it owe
anything, has an operator decided about an event."""

import threading
from collections.abc import Callable

from offsetzero import logs
from offsetzero.clock import Clock
from offsetzero.consumers.group import ConsumerGroup
from offsetzero.consumers.resources import Spawn
from offsetzero.consumers.working.amended import Amended
from offsetzero.consumers.working.owed import settle
from offsetzero.generation import Generation
from offsetzero.store import generations, withheld
from offsetzero.store.availability import is_away, is_conflict
from offsetzero.store.database import Pool
from offsetzero.store.script import run

LOOK_SECONDS = 0.5
AMENDED_SECONDS = 2.0
SWEEP_SECONDS = 60.0
POOL_SECONDS = 2.0  # for a connection
JOIN_SECONDS = 5.0

log = logs.get(__name__)


class PointerWatch:
    """Once another generation is read, says so; once this one is, does what it has withheld until then.

    The owner calls `start` and `close`.

    Args:
        group: the declaration.
        generation: of the member.
        amended: what operators have decided, which the member's readers look at.
        connections: to the database.
        source: `ce_source` of the run's events.
        clock: intervals.
        spawn: makes the thread.
        moved: told which generation is read, when it is another one.
        crashed: told of what no waiting mends.
    """

    def __init__(
        self,
        group: ConsumerGroup,
        generation: Generation,
        amended: Amended,
        connections: Pool,
        source: str,
        clock: Clock,
        spawn: Spawn,
        moved: Callable[[int], None],
        crashed: Callable[[BaseException], None],
    ) -> None:
        self._group = group
        self._generation = generation
        self._amended = amended
        self._connections = connections
        self._source = source
        self._clock = clock
        self._moved = moved
        self._crashed = crashed
        self._closed = threading.Event()
        self._sweep_at = clock.monotonic() + SWEEP_SECONDS
        self._amended_at = clock.monotonic() + AMENDED_SECONDS
        self._thread = spawn(self._run, f"pointer-{generation.name}")

    def start(self) -> None:
        """Start the thread."""
        self._thread.start()

    def close(self) -> None:
        """End it."""
        self._closed.set()
        self._thread.join(JOIN_SECONDS)

    def _run(self) -> None:
        try:
            while not self._closed.is_set():
                try:
                    self._look()
                except Exception as error:
                    if not is_away(error) and not is_conflict(error):
                        raise
                self._closed.wait(LOOK_SECONDS)
        except BaseException as error:
            self._crashed(error)

    def _look(self) -> None:
        with self._connections.connection(POOL_SECONDS) as connection:
            number = run(connection, generations.active(self._generation.group))
            if (now := self._clock.monotonic()) >= self._amended_at:
                self._amended_at = now + AMENDED_SECONDS
                self._amended.look(connection)
        if number is None:
            return
        if number != self._generation.number:
            self._moved(number)
            return
        self._settle()
        if (now := self._clock.monotonic()) >= self._sweep_at:
            self._sweep_at = now + SWEEP_SECONDS
            with self._connections.connection(POOL_SECONDS) as connection:
                run(connection, withheld.sweep(self._generation))

    def _settle(self) -> None:
        done = True
        while done and not self._closed.is_set():
            with self._connections.connection(POOL_SECONDS) as connection:
                done = run(connection, settle(self._group, self._generation, self._source))
