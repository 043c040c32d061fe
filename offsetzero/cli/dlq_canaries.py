"""Canaries of a redrive: dead letters that go first, and whose events must end well before the rest may follow."""

import contextlib
import sys
import threading
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated

import typer

if TYPE_CHECKING:
    from offsetzero.cli.dlq_desk import Desk
    from offsetzero.retry.redrive import Redrive
    from offsetzero.store.dead_letter_actions import Action

SECONDS = 3_600.0
_LOOK_SECONDS = 0.5

Count = Annotated[
    int | None,
    typer.Option("--canary", metavar="N", help="Send N first, and the rest when enough of them succeed."),
]
StopAbove = Annotated[
    str | None,
    typer.Option("--stop-above", metavar="SHARE", help="With --canary: stop when more of them fail; 5% if unsaid."),
]
Seconds = Annotated[
    float | None,
    typer.Option("--canary-seconds", help="With --canary: those at work for longer have failed; 3600 if unsaid."),
]


@dataclass(frozen=True, slots=True)
class Canaries:
    """How many go first, and what they must show.

    Attributes:
        count: how many.
        limit: the share of failures, 0 to 1, above which the rest stays.
        seconds: for which they are awaited.
    """

    count: int
    limit: float
    seconds: float

    def __str__(self) -> str:
        """As options of the command; `dlq_actions.PACE` finds them again."""
        seconds = "" if self.seconds == SECONDS else f" --canary-seconds {self.seconds:g}"
        return f" --canary {self.count} --stop-above {self.limit:g}{seconds}"


def of_options(
    count: int | None, stop_above: str | None, seconds: float | None, problems: list[str]
) -> Canaries | None:
    """What the options say; what is wrong with them is added to the problems."""
    problems += [] if count is None or count > 0 else [f"--canary {count}: it must be 1 or more"]
    if count is None and (stop_above is not None or seconds is not None):
        problems.append("--stop-above and --canary-seconds are about canaries: say how many with --canary")
    problems += [] if seconds is None or seconds > 0 else [f"--canary-seconds {seconds:g}: it must be more than 0"]
    limit = _share("5%" if stop_above is None else stop_above, problems)
    return None if count is None else Canaries(count, limit, SECONDS if seconds is None else seconds)


def check_outcomes(desk: "Desk", group: str) -> None:
    """See that somebody can tell how canaries of a group end.

    Raises:
        RedriveRefused: nobody can.
    """
    from offsetzero.errors import RedriveRefused
    from offsetzero.store import dead_letter_actions
    from offsetzero.store.script import run

    if not run(desk.connection, dead_letter_actions.keeps_outcomes(group)):
        raise RedriveRefused(
            f"--canary: group {group} writes no outcomes into this database, so nobody can tell how canaries end"
        )


def try_out(desk: "Desk", action: "Action", work: "Redrive", canaries: Canaries, stop: threading.Event) -> str | None:
    """Send the canaries, and wait until they tell; gives why the rest must stay, None when it may follow.

    What this action has sent before it was interrupted is its first canaries: only what is missing of them is sent.
    """
    from offsetzero.store import dead_letter_actions
    from offsetzero.store.script import run

    def sent() -> list[int]:
        return run(desk.connection, dead_letter_actions.first_done(action.id, canaries.count))

    work.send(canaries.count - len(sent()))
    return _await(desk, action, numbers, canaries, stop) if (numbers := sent()) else None


def _await(desk: "Desk", action: "Action", numbers: list[int], canaries: Canaries, stop: threading.Event) -> str | None:
    from offsetzero.clock import SYSTEM
    from offsetzero.errors import TopicError
    from offsetzero.retry.redrive_plan import Verdict, judge
    from offsetzero.store import dead_letter_actions
    from offsetzero.store.script import run
    from offsetzero.topics import lag

    sent, told, alone = len(numbers), "", False
    deadline = SYSTEM.monotonic() + canaries.seconds
    with contextlib.suppress(TopicError):  # who may not ask for its members may redrive all the same
        alone = not lag.group_state(desk.config, action.group).members
    if alone:
        print(
            f"No member of {action.group} runs: canaries end only when one does (`offsetzero groups list "
            f"{action.group}`). They are awaited for {canaries.seconds:g} s; Ctrl-C ends that.",
            file=sys.stderr,
        )
    while not stop.is_set():
        outcomes = run(desk.connection, dead_letter_actions.outcomes(action.id, numbers))
        verdict = judge(sent, outcomes, canaries.limit)
        said = ", ".join(f"{count} {outcome}" for outcome, count in sorted(outcomes.items())) or "none has ended"
        if said != told:
            told = said
            print(f"Canaries: {sent} sent, {said}", file=sys.stderr)
        if verdict is Verdict.GO:
            return None
        if verdict is Verdict.STOP:
            return f"of {sent} canaries: {said}; more than {canaries.limit * 100:g}% failed"
        if SYSTEM.monotonic() > deadline:
            return f"of {sent} canaries: {said}; the others have not ended in {canaries.seconds:g} s"
        stop.wait(_LOOK_SECONDS)
    return None


def _share(text: str, problems: list[str]) -> float:
    try:
        share = float(text.removesuffix("%")) / (100 if text.endswith("%") else 1)
    except ValueError:
        share = -1.0
    if not 0 <= share <= 1:
        problems.append(f"--stop-above {text}: give a share, such as 5% or 0.05")
    return share
