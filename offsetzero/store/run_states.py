"""Statuses of runs and steps, and every change of them that may be: one table, which the statements ask. Pure.

docs/api.md shows the same table; a test compares. A terminal status is left in one way only: an operator sends the dead
letter that failed it again, or has a generation of the group's projection read that has applied the event.
"""

from collections.abc import Collection
from dataclasses import dataclass
from enum import StrEnum
from typing import Generic, TypeVar


class RunStatus(StrEnum):
    """Where a run stands."""

    QUEUED = "queued"
    RUNNING = "running"
    SUCCEEDED = "succeeded"
    FAILED = "failed"
    CANCELLED = "cancelled"


class StepStatus(StrEnum):
    """Where one group's part of a run stands."""

    QUEUED = "queued"
    RUNNING = "running"
    WAITING = "waiting"
    SUCCEEDED = "succeeded"
    FAILED = "failed"
    CANCELLED = "cancelled"


S = TypeVar("S", RunStatus, StepStatus)


@dataclass(frozen=True, slots=True)
class Change(Generic[S]):
    """From any of these to that, and why."""

    before: tuple[S, ...]
    after: S
    why: str


_REDRIVEN = "an operator sends its dead letter again, or has a generation read that has applied it; audited"
_RUN_OPEN = (RunStatus.QUEUED, RunStatus.RUNNING)
_STEP_OPEN = (StepStatus.QUEUED, StepStatus.RUNNING, StepStatus.WAITING)

RESCUED = Change((StepStatus.RUNNING,), StepStatus.QUEUED, "its process is gone, or past the time that it may take")

RUN_CHANGES = (
    Change((RunStatus.QUEUED,), RunStatus.RUNNING, "a step begins"),
    Change(_RUN_OPEN, RunStatus.SUCCEEDED, "the last required step has ended, and all went well"),
    Change(_RUN_OPEN, RunStatus.FAILED, "the last required step has ended, and one failed"),
    Change(_RUN_OPEN, RunStatus.CANCELLED, "its tenant cancels it; or a required step was cancelled and none failed"),
    Change((RunStatus.FAILED,), RunStatus.QUEUED, _REDRIVEN),
)
STEP_CHANGES = (
    Change(_STEP_OPEN, StepStatus.RUNNING, "an attempt begins"),
    Change(_STEP_OPEN, StepStatus.WAITING, "another attempt is to come, or the provider is down"),
    Change(_STEP_OPEN, StepStatus.SUCCEEDED, "its effect is committed"),
    Change(_STEP_OPEN, StepStatus.FAILED, "it cannot succeed, or the last attempt failed"),
    Change(_STEP_OPEN, StepStatus.CANCELLED, "the run is cancelled"),
    Change((StepStatus.FAILED,), StepStatus.QUEUED, _REDRIVEN),
    RESCUED,
)

_BEFORE_RUN = {change.after: change.before for change in RUN_CHANGES}
_BEFORE_STEP = {change.after: change.before for change in STEP_CHANGES if change is not RESCUED}


def before_run(after: RunStatus) -> list[str]:
    """The statuses that a run may have before it gets this one: what a statement compares, then sets."""
    return [status.value for status in _BEFORE_RUN[after]]


def before_step(after: StepStatus) -> list[str]:
    """As `before_run`, of a step; without `RESCUED`, which is the sweeper's."""
    return [status.value for status in _BEFORE_STEP[after]]


def end_of(required: Collection[str]) -> RunStatus | None:
    """How a run ends whose required steps have these statuses; None while one has not ended, and when there is none."""
    if not required or any(status in _STEP_OPEN for status in required):
        return None
    if StepStatus.FAILED in required:
        return RunStatus.FAILED
    return RunStatus.CANCELLED if StepStatus.CANCELLED in required else RunStatus.SUCCEEDED
