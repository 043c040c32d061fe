"""The error taxonomy: every way in which handling a record can fail, one class each (design section 7).

    FailedHandling
    ├── Transient      worth another try later: time-outs, resets, 5xx, deadlocks
    │   └── Retry      the handler asks for another try
    ├── Throttled      the provider asked to wait (429)
    ├── ProviderDown   the provider as a whole refuses us (401, 403): no attempt is consumed
    ├── Permanent      will fail for ever, and the sender can know why: no dead letter
    ├── Poison         cannot be read at all: dead-lettered at the first failure, original bytes kept
    │   └── DeadLetter the handler asks for a dead letter
    ├── Bug            an exception nobody expected: one more try, then dead-lettered with its stack
    ├── CrashLoop      the process died on it, again and again
    ├── Cancelled      somebody has asked to stop
    └── Discard        the event is of no use to this group

Handlers raise any of them but `Bug` and `CrashLoop`; what else they raise is made into one of them by
`offsetzero.retry.classify`.
"""

from dataclasses import dataclass
from enum import StrEnum
from typing import Any, ClassVar

from offsetzero.errors import FailedHandling

MAX_REASON, MAX_DETAIL = 100, 1000  # characters
MAX_RETRY_AFTER = 24 * 60 * 60.0


class FailureClass(StrEnum):
    """The classes by name, from the mildest to the worst: labels of metrics, values of the header `oz_failure`."""

    DISCARDED = "discarded"
    CANCELLED = "cancelled"
    TRANSIENT = "transient"
    THROTTLED = "throttled"
    PROVIDER_DOWN = "provider-down"
    PERMANENT = "permanent"
    POISON = "poison"
    CRASH_LOOP = "crash-loop"
    BUG = "bug"


class DeadLettered(StrEnum):
    """When a failure of a class becomes a dead letter: the last column of the table."""

    NEVER = "never"
    FIRST = "at the first failure"
    SECOND = "after one more try"
    LAST = "after the last attempt"
    CRASHES = "after five crashes"


@dataclass(frozen=True, slots=True)
class Trace:
    """What is left of a traceback: a fingerprint of where it went, and its text."""

    fingerprint: str
    stack: str


class Failure(FailedHandling):
    """Base of the taxonomy.

    Args:
        reason: a stable lower-case code for people and programs, such as `password-needed`.
        detail: one sentence for people; users see it in their runs, so no personal text and nothing internal.
        retry_after: seconds that must pass before another try, where the other side said so; at most a day counts.
        provider: who refused, where it is a provider that others call, too.
        internal: what only operators may see, in logs: the text of a foreign exception. Dead letters have it where it
            tells of systems (`offsetzero.retry.traces`): they are kept for ever, and it may quote what was worked on.

    Text is cleaned and cut here, once: it goes into headers, logs and the database, which refuse NUL and lone
    surrogates, and a 2 MB reason would make a dead letter too large.
    """

    failure_class: ClassVar[FailureClass]
    dead_letter: ClassVar[DeadLettered]
    trace: "Trace | None" = None
    """What is written of its traceback, once that was let go."""

    def __init__(
        self,
        reason: str,
        detail: str = "",
        *,
        retry_after: float | None = None,
        internal: str = "",
        provider: str = "",
    ) -> None:
        self.reason = _clean(reason, MAX_REASON) or "unknown"
        self.detail = _clean(detail, MAX_DETAIL)
        self.internal = _clean(internal, MAX_DETAIL)
        self.retry_after = None if retry_after is None else min(max(0.0, retry_after), MAX_RETRY_AFTER)
        self.provider = _clean(provider, MAX_REASON)
        super().__init__(f"{self.reason}: {self.detail}" if self.detail else self.reason)


class Transient(Failure):
    """Worth another try later."""

    failure_class = FailureClass.TRANSIENT
    dead_letter = DeadLettered.LAST


class Retry(Transient):
    """Raised by a handler that wants another try.

    Args:
        reason: a stable lower-case code.
        detail: one sentence for people.
        after: seconds that must pass before it; by default the delay of the next tier.
    """

    def __init__(self, reason: str = "asked-for-retry", detail: str = "", *, after: float | None = None) -> None:
        super().__init__(reason, detail, retry_after=after)


class Throttled(Failure):
    """The other side asked to wait; never tried again before `retry_after` seconds have passed."""

    failure_class = FailureClass.THROTTLED
    dead_letter = DeadLettered.LAST


class ProviderDown(Failure):
    """The provider as a whole refuses us; the record waits without consuming an attempt."""

    failure_class = FailureClass.PROVIDER_DOWN
    dead_letter = DeadLettered.NEVER


class Permanent(Failure):
    """Fails the run at once, with no dead letter: nobody could repair this record."""

    failure_class = FailureClass.PERMANENT
    dead_letter = DeadLettered.NEVER


class Poison(Failure):
    """Cannot be read: fails the run at once, and the original bytes go to the dead letters."""

    failure_class = FailureClass.POISON
    dead_letter = DeadLettered.FIRST


class DeadLetter(Poison):
    """Raised by a handler that wants a person to look at the event: it is dead-lettered at once."""


class CrashLoop(Failure):
    """The process died on this record five times; found at the start of the next one, never raised by a handler."""

    failure_class = FailureClass.CRASH_LOOP
    dead_letter = DeadLettered.CRASHES


class Bug(Failure):
    """An exception that no rule explains."""

    failure_class = FailureClass.BUG
    dead_letter = DeadLettered.SECOND


class Cancelled(Failure):
    """Somebody has asked to stop: the step of the run is cancelled, and the event done."""

    failure_class = FailureClass.CANCELLED
    dead_letter = DeadLettered.NEVER

    def __init__(self, reason: str = "cancelled", detail: str = "", **more: Any) -> None:
        super().__init__(reason, detail, **more)


class Discard(Failure):
    """Raised by a handler to which the event is of no use: it is done, and the run's step succeeds with a warning."""

    failure_class = FailureClass.DISCARDED
    dead_letter = DeadLettered.NEVER


def _clean(text: str, limit: int) -> str:
    shown = "".join(c if c.isprintable() or c == "\n" else " " for c in str(text)[:limit])
    return shown.encode(errors="backslashreplace").decode()
