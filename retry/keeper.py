"""This process's part in the protection of providers: one thread asks and tells for all its handlers together.

A handler that calls asks here; what many ask at one time is one transaction. What it tells afterwards costs it nothing,
unless the call has failed: then it waits for a moment until it is known whose fault that is.
"""

import threading
from collections.abc import Callable
from concurrent.futures import Future
from typing import Protocol, TypeAlias

from offsetzero import logs, metrics
from offsetzero.clock import Clock
from offsetzero.retry.breaker import UNAUTHORISED, Answer, Caller
from offsetzero.retry.desk import AGAIN_SECONDS, IDLE_LOOK_SECONDS, Desk
from offsetzero.retry.protection import Limits, Protection, Wait
from offsetzero.retry.telling import shown, tell
from offsetzero.retry.turn import AWAY, SETTLED, Asking, Ended, Lose, Permit

PATIENCE_SECONDS = 10.0
"""For which a worker waits for a free call; then its record waits without one."""
TELL_SECONDS = 30.0  # between two lines that say that the database does not serve

log = logs.get(__name__)


class Store(Protocol):
    """Where the one value of each provider is."""

    def change(self, name: str, decide: "Decide") -> None:
        """Decide over a provider, alone among all processes. Blocks for seconds at most.

        Args:
            name: the provider's.
            decide: given what is known, None for a provider that nobody has called, and the time; returns what is
                known then, None when nothing has changed.

        Raises:
            Exception: it cannot be done now; nothing has changed, or what has is forgotten when leases end.
        """
        ...


Decide: TypeAlias = Callable[[Protection | None, float], Protection | None]


class Thread(Protocol):
    """As much of `threading.Thread` as is used."""

    def start(self) -> None: ...

    def join(self, timeout: float | None = None) -> None: ...


class Keeper:
    """Any thread may call its methods; its own thread begins with the first call and ends by `close`.

    Args:
        store: shared by all processes that call the same providers.
        limits: of a provider, by its name.
        clock: monotonic time.
        spawn: makes the thread, of a function and a name.
        crashed: told of an error that no rule explains: the process must not go on as if nothing had happened.
    """

    def __init__(
        self,
        store: Store,
        limits: Callable[[str], Limits],
        clock: Clock,
        spawn: Callable[[Callable[[], None], str], Thread],
        crashed: Callable[[BaseException], None],
    ) -> None:
        self._store = store
        self._limits = limits
        self._clock = clock
        self._spawn = spawn
        self._crashed = crashed
        self._lock = threading.Lock()
        self._wake = threading.Condition(self._lock)
        self._desks: dict[str, Desk] = {}
        self._thread: Thread | None = None
        self._closed = False
        self._tell_at = 0.0

    def begin(self, name: str, caller: Caller, lose: Lose | None = None) -> "Future[Permit | Wait]":
        """Ask for a call; the answer comes within some seconds, and a permit must be ended.

        Args:
            name: the provider's.
            caller: who asks.
            lose: called when this process was away for longer than a lease, and others have the call's place: the call
                is to end, and still to be told. From the keeper's thread; it must not block.
        """
        future: Future[Permit | Wait] = Future()
        with self._lock:
            if self._closed:
                future.set_result(AWAY)
                return future
            desk = self._desk(name)
            desk.asking.append(Asking(caller, self._clock.monotonic() + PATIENCE_SECONDS, future, lose))
            self._call(desk)
        return future

    def end(
        self, permit: Permit, answer: Answer, retry_after: float | None = None, cause: str = UNAUTHORISED
    ) -> "Future[Wait | None]":
        """Tell what a call came to.

        Args:
            permit: of the call.
            answer: what it came to.
            retry_after: seconds that the provider asked for.
            cause: for `Answer.DOWN`, why.

        Returns:
            None when the failure is the record's own, otherwise what the record has to wait for; known within seconds,
            and at once when there was no failure.
        """
        metrics.PROVIDER_CALLS.labels(permit.provider, answer.value).inc()
        future: Future[Wait | None] = Future()
        ended = Ended(permit.call, answer, retry_after, cause, future)
        with self._lock:
            desk = self._desk(permit.provider)
            if answer in SETTLED:
                ended.answered(None)
            elif self._closed:
                ended.answered(AWAY)
            desk.ended.append(ended)
            self._call(desk)
        return future

    def hold_back(self, name: str) -> Wait | None:
        """What a record that waits for a provider has to wait for still; None for one that may try. Asks nobody."""
        with self._lock:
            return self._desk(name).hold_back(self._clock.monotonic())

    def slot(self, name: str, wait: Wait) -> float:
        """When a record that has to wait may try again (monotonic seconds): one after the other."""
        metrics.PROVIDER_WAITS.labels(name, wait.why.value).inc()
        with self._lock:
            return self._desk(name).slot(self._clock.monotonic(), wait)

    def shown(self) -> dict[str, dict[str, object]]:
        """What is known of each provider that was called here, for people."""
        with self._lock:
            now = self._clock.monotonic()
            return {
                name: shown(desk.known, now + desk.ahead)
                for name, desk in self._desks.items()
                if desk.known is not None
            }

    def close(self) -> None:
        """Tell what is left to tell, once, and end; whoever waits gets an answer."""
        with self._lock:
            self._closed = True
            self._wake.notify()
        if self._thread is not None:
            self._thread.join(2 * AGAIN_SECONDS)

    # --- with the lock held

    def _desk(self, name: str) -> Desk:
        desk = self._desks.get(name)
        if desk is None:
            desk = self._desks[name] = Desk(name, self._limits(name))
        return desk

    def _call(self, desk: Desk) -> None:
        """Have the thread look at once."""
        desk.next_at = 0.0
        if self._thread is None and not self._closed:
            self._thread = self._spawn(self._run, "providers")
            self._thread.start()
        self._wake.notify()

    def _rest(self) -> float:
        now = self._clock.monotonic()
        return min([IDLE_LOOK_SECONDS, *(desk.next_at - now for desk in self._desks.values())])

    # --- its thread

    def _run(self) -> None:
        try:
            closed = False
            while not closed:  # and once more, to tell what has ended
                with self._lock:
                    self._clock.wait(self._wake, lambda: self._closed or self._rest() <= 0, max(0.0, self._rest()))
                    closed, now = self._closed, self._clock.monotonic()
                    due = [desk for desk in self._desks.values() if closed or desk.next_at <= now]
                for desk in due:
                    self._serve(desk)
        except BaseException as error:
            self._crashed(error)
        finally:
            with self._lock:
                self._closed = True
                for desk in self._desks.values():
                    now = self._clock.monotonic()
                    desk.forget_turn(now, desk.begin_turn(now, asks=True))

    def _serve(self, desk: Desk) -> None:
        with self._lock:
            before, turn = desk.known, desk.begin_turn(self._clock.monotonic(), asks=not self._closed)
        try:
            self._store.change(desk.name, turn.decide)
        except Exception as error:
            now = self._clock.monotonic()
            if now >= self._tell_at:  # it is tried again every second
                self._tell_at = now + TELL_SECONDS
                log.warning("a provider cannot be asked for", provider=desk.name, error=str(error))
            with self._lock:
                desk.forget_turn(now, turn)
            return
        with self._lock:
            desk.end_turn(self._clock.monotonic(), turn)
        if turn.lost:
            log.warning("calls have lost their places", provider=desk.name, calls=len(turn.lost))
        tell(desk.name, before, turn.known, turn.at, desk.limits)
