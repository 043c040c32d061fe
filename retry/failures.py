"""The error taxonomy: every way in which handling a record can fail, one class each (design section 7).

    FailedHandling
    ├── Transient      worth another try later: time-outs, resets, 5xx, deadlocks
    ├── Throttled      the provider asked to wait (429)
    ├── ProviderDown   the provider as a whole refuses us (401, 403): no attempt is consumed
    ├── Permanent      will fail for ever, and the sender can know why: no dead letter
    ├── Poison         cannot be read at all: dead-lettered at the first failure, original bytes kept
    └── Bug            an exception nobody expected: one more try, then dead-lettered with its stack

Handlers raise the first five; what else they raise is made into one of the six by `offsetzero.retry.classify`.
"""

from dataclasses import dataclass
from enum import StrEnum
from typing import ClassVar

from offsetzero.errors import FailedHandling

MAX_REASON, MAX_DETAIL = 100, 1000  # characters
MAX_RETRY_AFTER = 24 * 60 * 60.0


class FailureClass(StrEnum):
    """The classes by name: labels of metrics, values of the header `oz_failure`."""

    TRANSIENT = "transient"
    THROTTLED = "throttled"
    PROVIDER_DOWN = "provider-down"
    PERMANENT = "permanent"
    POISON = "poison"
    BUG = "bug"


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
        internal: what only operators may see, in logs and dead letters: the text of a foreign exception.

    Text is cleaned and cut here, once: it goes into headers, logs and the database, which refuse NUL and lone
    surrogates, and a 2 MB reason would make a dead letter too large.
    """

    failure_class: ClassVar[FailureClass]
    trace: "Trace | None" = None
    """What is written of its traceback, once that was let go."""

    def __init__(self, reason: str, detail: str = "", *, retry_after: float | None = None, internal: str = "") -> None:
        self.reason = _clean(reason, MAX_REASON) or "unknown"
        self.detail = _clean(detail, MAX_DETAIL)
        self.internal = _clean(internal, MAX_DETAIL)
        self.retry_after = None if retry_after is None else min(max(0.0, retry_after), MAX_RETRY_AFTER)
        super().__init__(f"{self.reason}: {self.detail}" if self.detail else self.reason)


class Transient(Failure):
    """Worth another try later."""

    failure_class = FailureClass.TRANSIENT


class Throttled(Failure):
    """The other side asked to wait; never tried again before `retry_after` seconds have passed."""

    failure_class = FailureClass.THROTTLED


class ProviderDown(Failure):
    """The provider as a whole refuses us; the record waits without consuming an attempt."""

    failure_class = FailureClass.PROVIDER_DOWN


class Permanent(Failure):
    """Fails the run at once, with no dead letter: nobody could repair this record."""

    failure_class = FailureClass.PERMANENT


class Poison(Failure):
    """Cannot be read: fails the run at once, and the original bytes go to the dead letters."""

    failure_class = FailureClass.POISON


class Bug(Failure):
    """An exception that no rule explains."""

    failure_class = FailureClass.BUG


def _clean(text: str, limit: int) -> str:
    shown = "".join(c if c.isprintable() or c == "\n" else " " for c in str(text)[:limit])
    return shown.encode(errors="backslashreplace").decode()
