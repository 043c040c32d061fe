"""The error taxonomy: every way in which handling a record can fail, one class each (design section 7).

    FailedHandling
    ├── Transient      worth another try later: time-outs, resets, 5xx, deadlocks
    ├── Throttled      the provider asked to wait (429)
    ├── ProviderDown   the provider as a whole refuses us (401, 403): no attempt is consumed
    ├── Permanent      will fail for ever, and the sender can know why: no dead letter
    ├── Poison         cannot be read at all: dead-lettered at the first failure, original bytes kept
    └── Bug            an exception nobody expected: one more try, then dead-lettered with its stack

Handlers raise the first five; what else they raise is made into one of them by `offsetzero.retry.classify`.
"""

from enum import StrEnum
from typing import ClassVar

from offsetzero.errors import FailedHandling


class FailureClass(StrEnum):
    """The classes by name: labels of metrics, values of the header `oz_failure`."""

    TRANSIENT = "transient"
    THROTTLED = "throttled"
    PROVIDER_DOWN = "provider-down"
    PERMANENT = "permanent"
    POISON = "poison"
    BUG = "bug"


class Failure(FailedHandling):
    """Base of the taxonomy.

    Args:
        reason: a stable lower-case code for people and programs, such as `password-needed`.
        detail: one sentence for people; ends up in runs and dead letters, so no personal text.
        retry_after: seconds that must pass before another try, where the other side said so.
    """

    failure_class: ClassVar[FailureClass]

    def __init__(self, reason: str, detail: str = "", *, retry_after: float | None = None) -> None:
        self.reason = reason
        self.detail = detail
        self.retry_after = retry_after
        super().__init__(f"{reason}: {detail}" if detail else reason)


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
