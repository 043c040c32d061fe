"""`with ctx.provider("openai"):` around a call: what it raises is counted, and decides what becomes of the record."""

import asyncio
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
from offsetzero.retry.turn import Permit

Note: TypeAlias = Callable[[str, Wait], None]
"""Told of each wait before it is raised: what the handler makes of the exception does not matter then."""


class ProviderCall:
    """A context manager, sync and async, for one call of a provider.

    Entering it waits, for seconds at most, until the call may begin.

    Raises:
        ProviderWaits: the provider is down, or has as many calls as it may have, or its failure is not the record's
            fault: the record is handled again later, with the same attempt. Leave it alone.
        Permanent: `provider-403`, when only this record gets it.
    """

    __slots__ = ("_caller", "_keeper", "_name", "_note", "_permits", "_rules")

    def __init__(self, keeper: Keeper | None, name: str, caller: Caller, note: Note, rules: Rules = NO_RULES) -> None:
        self._keeper = keeper
        self._name = name
        self._caller = caller
        self._note = note
        self._rules = rules
        self._permits: list[Permit] = []  # several, where tasks of one handler share this

    @classmethod
    def unprotected(cls, name: str) -> "ProviderCall":
        """One that waits for nothing and counts nothing, for tests that call a handler by themselves."""
        return cls(None, name, Caller(""), lambda _name, _wait: None)

    def __enter__(self) -> None:
        if self._keeper is not None:
            self._begun(self._keeper.begin(self._name, self._caller).result())

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        ended = judge(error, self._rules)
        if self._keeper is not None and self._permits:
            future = self._keeper.end(self._permits.pop(), ended.answer, ended.retry_after, ended.cause)
            self._conclude(ended, error, future.result())

    async def __aenter__(self) -> None:
        if self._keeper is None:
            return
        future = self._keeper.begin(self._name, self._caller)
        try:
            answer = await asyncio.wrap_future(future)
        except BaseException:  # the task is cancelled, and may have got its permit in the same moment
            if not future.cancel() and isinstance(given := future.result(), Permit):
                self._keeper.end(given, Answer.UNKNOWN)
            raise
        self._begun(answer)

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        ended = judge(error, self._rules)
        if self._keeper is not None and self._permits:
            future = self._keeper.end(self._permits.pop(), ended.answer, ended.retry_after, ended.cause)
            # What is known at once is not waited for: a task that is being cancelled could not.
            self._conclude(ended, error, future.result() if future.done() else await asyncio.wrap_future(future))

    def _begun(self, answer: Permit | Wait) -> None:
        if isinstance(answer, Wait):
            raise self._waits(answer)
        self._permits.append(answer)

    def _conclude(self, ended: "Ending", error: BaseException | None, wait: Wait | None) -> None:
        if wait is not None:
            raise self._waits(wait) from error
        if ended.answer is Answer.FORBIDDEN and ended.failure is not None:
            failure = ended.failure
            raise Permanent(failure.reason, failure.detail, internal=failure.internal) from error

    def _waits(self, wait: Wait) -> ProviderWaits:
        self._note(self._name, wait)
        return ProviderWaits(self._name, wait.why, wait.seconds)


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
