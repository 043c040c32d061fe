"""How a member is: alive, ready, and what it is doing, as JSON for probes and people."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

from offsetzero.consumers.watching.watch import Part, Running
from offsetzero.consumers.watching.watcher import Sight

SILENT_SECONDS = 30.0
"""Without a turn of the polling thread, or of the event loop: longer than anything that they wait for."""


class Phase(StrEnum):
    """Where a member is in its life."""

    STARTING = "starting"
    JOINING = "joining"
    WORKING = "working"
    DEGRADED = "degraded"
    """It works, and some of its partitions rest until another system is back."""
    DRAINING = "draining"
    STOPPED = "stopped"


@dataclass(frozen=True, slots=True)
class Health:
    """The answer to a probe.

    Attributes:
        alive: a restart would not help.
        ready: it has its part of the group.
        body: what to show; `reasons` says why it is not alive, `not_ready` why it is not ready, `degraded` what it
            cannot do for now.
        degraded: something is named there.
    """

    alive: bool
    ready: bool
    body: dict[str, Any]
    degraded: bool = False


def health(
    group: str,
    phase: Phase,
    sight: Sight,
    silent: float,
    error: BaseException | None,
    degraded: Sequence[str] = (),
    providers: Mapping[str, Any] | None = None,
) -> Health:
    """Judge a member.

    Args:
        group: its group.
        phase: where it is.
        sight: what its last look saw.
        silent: seconds since the polling thread has last turned.
        error: why it ends, if not because it was told to.
        degraded: what it cannot do now and goes on trying, a sentence each; no restart would help.
        providers: what is known of those that its handlers call.
    """
    reasons = []
    if error is not None:
        reasons.append(str(error))
    if phase in (Phase.WORKING, Phase.DRAINING) and silent > SILENT_SECONDS:
        reasons.append(f"the polling thread has not turned for {silent:.0f} s")
    held, where = sight.held
    if held > SILENT_SECONDS:
        reasons.append(f"the event loop has been held up for {held:.0f} s by {where or 'a handler'}")
    reasons += sight.findings.stalled
    not_ready = [*reasons]
    if phase is not Phase.WORKING:
        not_ready.append(f"it is {phase}")
    elif not sight.joined:
        not_ready.append("it has not joined the group yet")
    body = {
        "group": group,
        "state": _state(phase, sight, degraded),
        "reasons": reasons,
        "not_ready": not_ready,
        "degraded": list(degraded),
        "polled_seconds_ago": round(silent, 1),
        "handlers": {"running": sight.running, "given_up": sight.late, "waiting": sight.waiting},
        "providers": dict(providers or {}),
        "stuck": [_stuck(one) for one in sight.findings.stuck],
        "partitions": [_partition(part, sight) for part in sight.parts],
    }
    return Health(not reasons, not not_ready, body, bool(degraded))


def _state(phase: Phase, sight: Sight, degraded: Sequence[str]) -> Phase:
    if phase is not Phase.WORKING:
        return phase
    if not sight.joined:
        return Phase.JOINING
    return Phase.DEGRADED if degraded else Phase.WORKING


def _stuck(one: Running) -> dict[str, Any]:
    return {
        "topic": one.topic,
        "partition": one.partition,
        "offset": one.offset,
        "key": one.key,
        "seconds": round(one.seconds, 1),
        "records": one.records,
        "where": one.where,
    }


def _partition(part: Part, sight: Sight) -> dict[str, Any]:
    head, still = part.head, sight.findings.still.get(part.place)
    stands = head.offset if head is not None else part.position
    return {
        "topic": part.topic,
        "partition": part.partition,
        "committed": part.committed,
        "position": part.position,
        "end": part.end,
        "lag": max(0, part.end - stands) if part.end is not None and stands is not None else None,
        "undone": part.undone,
        "pauses": list(part.pauses),
        "head": None
        if head is None
        else {"offset": head.offset, "key": head.key, "seconds": round(still or 0.0, 1), "doing": head.doing},
    }
