"""What many requests want of the database at once is asked at once: one round trip and one commit for all of them."""

import asyncio
import contextvars
from collections.abc import Awaitable, Callable, Sequence
from typing import Generic, TypeVar

import psycopg

from offsetzero.clock import SYSTEM, Clock

AT_ONCE = 64
"""That one statement is asked."""
_PATIENCE_SECONDS = 0.25  # after which the next statement does not wait for the one before it, which waits for a lock
_STATEMENTS = 4

Q = TypeVar("Q")
A = TypeVar("A")


class Together(Generic[Q, A]):
    """Belongs to one event loop. Who comes alone is asked for at once; who comes meanwhile, with all others, next.

    So nothing is ever answered by what was seen before it was wanted, and the busier a process is, the less each costs.

    Args:
        ask: gives an answer to each, in their order, or raises and has had no effect; a `psycopg.OperationalError` may
            have had it.
        clock: for patience.
    """

    def __init__(self, ask: Callable[[Sequence[Q]], Awaitable[Sequence[A]]], clock: Clock = SYSTEM) -> None:
        self._ask = ask
        self._clock = clock
        self._waiting: list[tuple[Q, asyncio.Future[A]]] = []
        self._at_work = 0
        self._tasks: set[asyncio.Task[None]] = set()  # held, or they might be collected
        self._begun = 0.0
        self._look: asyncio.TimerHandle | None = None

    async def __call__(self, wanted: Q) -> A:
        """The answer; whatever `ask` raises about this one."""
        place: asyncio.Future[A] = asyncio.get_running_loop().create_future()
        self._waiting.append((wanted, place))
        self._begin()
        return await place

    def _begin(self) -> None:
        """Have those who wait asked for now, if nothing is at work, or what is takes long; else look again by then."""
        loop, left = asyncio.get_running_loop(), self._begun + _PATIENCE_SECONDS - self._clock.monotonic()
        if self._at_work < (1 if left > 0 else _STATEMENTS):
            self._at_work += 1
            self._begun = self._clock.monotonic()
            task = loop.create_task(self._work(), context=contextvars.Context())  # of no one request
            self._tasks.add(task)
            task.add_done_callback(self._tasks.discard)
        elif self._at_work < _STATEMENTS and self._look is None:
            self._look = loop.call_later(left, self._look_again, context=contextvars.Context())

    def _look_again(self) -> None:
        self._look = None
        if self._waiting:
            self._begin()

    async def _work(self) -> None:
        try:
            while self._waiting:
                taken, self._waiting = self._waiting[:AT_ONCE], self._waiting[AT_ONCE:]
                self._begun = self._clock.monotonic()
                await self._answer(taken)
        finally:
            self._at_work -= 1  # in the same step as the last look: who comes from now on begins anew

    async def _answer(self, taken: list[tuple[Q, asyncio.Future[A]]]) -> None:
        try:
            answers = await self._ask([wanted for wanted, _ in taken])
        except psycopg.OperationalError as error:
            _fail(taken, error)
        except Exception as error:
            if len(taken) == 1:
                _fail(taken, error)
                return
            for one in taken:  # it is about one of them; the others have theirs
                await self._answer([one])
        else:
            for (_, place), answer in zip(taken, answers, strict=True):
                if not place.done():  # the request may have been given up
                    place.set_result(answer)


def _fail(taken: Sequence[tuple[object, asyncio.Future[A]]], error: Exception) -> None:
    for _, place in taken:
        if not place.done():
            place.set_exception(error)
