"""`with ctx.provider("openai"):` around a call: what it raises is counted, and decides what becomes of the record."""

import asyncio
import contextlib
from collections.abc import Callable
from dataclasses import dataclass
from types import TracebackType
from typing import TypeAlias

from offsetzero.errors import ProviderWaits
from offsetzero.retry.breaker import Answer, Caller
from offsetzero.retry.classify import NO_RULES, Rules, classify
from offsetzero.retry.failures import Failure, FailureClass, Permanent, Retry
from offsetzero.retry.keeper import Keeper
from offsetzero.retry.protection import Wait
from offsetzero.retry.turn import AWAY, Permit

Note: TypeAlias = Callable[[str, Wait], None]
"""Told of each wait before it is raised: what the handler makes of the exception does not matter then."""


class ProviderCall:
    """A context manager, sync and async, for one call of a provider.

    Entering it waits, for seconds at most, until the call may begin.

    Args:
        keeper: None for one that waits for nothing and counts nothing.
        name: the provider's.
        caller: for whom it is called.
        note: told of each wait before it is raised.
        rules: see `offsetzero.retry.classify`.
        patient: of `async with`: wait until it is known whose fault a failure is. Without that its exception passes.

    Raises:
        ProviderWaits: the provider is down, or has as many calls as it may have, or its failure is not the record's
            fault: the record is handled again later, with the same attempt. Leave it alone.
        Permanent: `provider-403`, when only this record gets it.
    """

    __slots__ = ("_caller", "_keeper", "_name", "_note", "_patient", "_permits", "_rules")

    def __init__(
        self,
        keeper: Keeper | None,
        name: str,
        caller: Caller,
        note: Note,
        rules: Rules = NO_RULES,
        *,
        patient: bool = True,
    ) -> None:
        self._keeper = keeper
        self._name = name
        self._caller = caller
        self._note = note
        self._rules = rules
        self._patient = patient
        self._permits: list[tuple[Permit, _Inside | None]] = []  # several, where tasks of one handler share this

    @classmethod
    def unprotected(cls, name: str) -> "ProviderCall":
        """One that waits for nothing and counts nothing, for tests that call a handler by themselves."""
        return cls(None, name, Caller(""), lambda _name, _wait: None)

    def __enter__(self) -> None:
        if self._keeper is not None:
            self._begun(self._keeper.begin(self._name, self._caller).result(), None)

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        ended = judge(error, self._rules)
        if self._keeper is not None and self._permits:
            permit, _ = self._permits.pop()
            future = self._keeper.end(permit, ended.answer, ended.retry_after, ended.cause)
            self._conclude(ended, error, future.result())

    async def __aenter__(self) -> None:
        if self._keeper is None:
            return
        inside = _Inside()
        future = self._keeper.begin(self._name, self._caller, inside.lose)
        try:
            answer = await asyncio.wrap_future(future)
        except BaseException as error:  # the task is cancelled, and may have got its permit in the same moment
            if not future.cancel() and isinstance(given := future.result(), Permit):
                self._keeper.end(given, Answer.UNKNOWN)
            if inside.leave():
                raise self._waits(AWAY) from error
            raise
        self._begun(answer, inside)

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        ended = judge(error, self._rules)
        if self._keeper is not None and self._permits:
            permit, inside = self._permits.pop(self._mine())
            was_lost = inside is not None and inside.leave() and isinstance(error, asyncio.CancelledError)
            future = self._keeper.end(permit, ended.answer, ended.retry_after, ended.cause)
            if was_lost:
                raise self._waits(AWAY) from error
            if not self._patient:
                return
            # What is known at once is not waited for: a task that is being cancelled could not.
            self._conclude(ended, error, future.result() if future.done() else await asyncio.wrap_future(future))

    def _begun(self, answer: Permit | Wait, inside: "_Inside | None") -> None:
        if isinstance(answer, Wait):
            raise self._waits(answer)
        self._permits.append((answer, inside))

    def _mine(self) -> int:
        """Which permit is this task's."""
        task = asyncio.current_task()
        own = [at for at, (_, inside) in enumerate(self._permits) if inside is not None and inside.task is task]
        return own[-1] if own else -1

    def _conclude(self, ended: "Ending", error: BaseException | None, wait: Wait | None) -> None:
        if wait is not None:
            raise self._waits(wait) from error
        if ended.answer is Answer.FORBIDDEN and ended.failure is not None:
            failure = ended.failure
            raise Permanent(failure.reason, failure.detail, internal=failure.internal) from error

    def _waits(self, wait: Wait) -> ProviderWaits:
        self._note(self._name, wait)
        return ProviderWaits(self._name, wait.why, wait.seconds)


class _Inside:
    """The task that is in a block, which it leaves when its call loses its place: by a cancellation that ends there, as
    that of `asyncio.timeout` does."""

    __slots__ = ("_cancelling", "_left", "_loop", "_lost", "task")

    def __init__(self) -> None:
        task = asyncio.current_task()
        assert task is not None  # noqa: S101 - `async with` runs in one
        self.task = task
        self._loop = asyncio.get_running_loop()
        self._cancelling = task.cancelling()
        self._lost = self._left = False

    def lose(self) -> None:
        """Any thread may call this."""
        with contextlib.suppress(RuntimeError):  # its loop has ended
            self._loop.call_soon_threadsafe(self._cancel)

    def leave(self) -> bool:
        """The block ends; gives whether it lost its place, and nobody else has cancelled the task."""
        self._left = True
        return self._lost and self.task.uncancel() <= self._cancelling

    def _cancel(self) -> None:
        if not self._left and not self._lost:
            self._lost = True
            self.task.cancel()


@dataclass(frozen=True, slots=True)
class Ending:
    """How a call ended; `cause` says why the provider is down, where the answer is `Answer.DOWN`."""

    answer: Answer
    failure: Failure | None = None
    retry_after: float | None = None
    cause: str = ""


def judge(error: BaseException | None, rules: Rules = NO_RULES) -> Ending:
    """What an exception says about the provider whose call raised it.

    A bug of the handler, its database, a cancelled task say nothing.
    """
    if error is None:
        return Ending(Answer.SERVED)
    if not isinstance(error, Exception) or isinstance(error, ProviderWaits):
        return Ending(Answer.UNKNOWN)
    failure = classify(error, rules=rules)
    if isinstance(failure, Retry):  # a wish of the handler
        return Ending(Answer.UNKNOWN)
    match failure.failure_class:
        case FailureClass.PERMANENT:
            answer = Answer.ANSWERED
        case FailureClass.TRANSIENT if failure.reason != "database":
            answer = Answer.FAILED
        case FailureClass.THROTTLED:
            answer = Answer.THROTTLED
        case FailureClass.PROVIDER_DOWN:
            answer = Answer.FORBIDDEN if failure.reason == "provider-403" else Answer.DOWN
        case _:
            answer = Answer.UNKNOWN
    return Ending(answer, failure, failure.retry_after, failure.reason)
