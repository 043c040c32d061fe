"""`offsetzero dlq redrive`: dead letters back to their group, with canaries, at a rate, interruptible."""

import contextlib
import sys
import threading
from collections.abc import Sequence
from typing import TYPE_CHECKING, Annotated
from uuid import UUID

import typer

from offsetzero.cli import dlq_actions, dlq_bar, group_names
from offsetzero.cli.dlq_actions import DryRun
from offsetzero.cli.dlq_desk import All, EventType, Fingerprint, Since, Tenant, Text, Until, Which, Who, Why
from offsetzero.cli.signals import stopped_by_signals

if TYPE_CHECKING:
    from offsetzero.cli.dlq_desk import Desk
    from offsetzero.retry.redrive import Redrive
    from offsetzero.store.dead_letter_actions import Action

RATE = 100.0
CANARY_SECONDS = 3_600.0
_LOOK_SECONDS = 0.5


def redrive(
    group: group_names.Name,
    which: Which = None,
    event_type: EventType = None,
    tenant: Tenant = None,
    fingerprint: Fingerprint = None,
    since: Since = None,
    until: Until = None,
    text: Text = None,
    every: All = False,
    why: Why = "",
    who: Who = None,
    dry_run: DryRun = False,
    rate: Annotated[float, typer.Option("--rate", help="The most in a second.")] = RATE,
    canary: Annotated[
        int | None,
        typer.Option("--canary", metavar="N", help="Send N first, and the rest when enough of them succeed."),
    ] = None,
    stop_above: Annotated[
        str | None,
        typer.Option("--stop-above", metavar="SHARE", help="With --canary: stop when more of them fail; 5% if unsaid."),
    ] = None,
    canary_seconds: Annotated[
        float | None,
        typer.Option("--canary-seconds", help="With --canary: those at work for longer have failed; 3600 if unsaid."),
    ] = None,
    resume: Annotated[
        str | None, typer.Option("--resume", metavar="ID", help="Go on with a redrive that was interrupted.")
    ] = None,
) -> None:
    """Send dead letters back to their group: to no other, as first attempts, those of a key in their order.

    Choose them by place or event id, by filters, or with --all; only open ones go. Events of runs that have failed
    make these queued again. Ctrl-C ends it after what is being sent; it goes on with --resume, also after a crash:
    nothing is lost, and an event that was sent twice is applied once.
    """
    from offsetzero.cli import dlq_desk
    from offsetzero.errors import ConfigurationError
    from offsetzero.retry import redrive_plan
    from offsetzero.store.dead_letter_actions import Kind

    problems = [] if 0 < rate < float("inf") else [f"--rate {rate:g}: it must be more than 0"]
    problems += [] if canary is None or canary > 0 else [f"--canary {canary}: it must be 1 or more"]
    if canary is None and (stop_above is not None or canary_seconds is not None):
        problems.append("--stop-above and --canary-seconds are about canaries: say how many with --canary")
    seconds = CANARY_SECONDS if canary_seconds is None else canary_seconds
    problems += [] if seconds > 0 else [f"--canary-seconds {seconds:g}: it must be more than 0"]
    limit = _share("5%" if stop_above is None else stop_above, problems)
    options = {"type": event_type, "tenant": tenant, "fingerprint": fingerprint, "since": since, "until": until}
    said = {**options, "text": text}
    if resume is None:
        dlq_actions.check_choice(which, said, every, why, dry_run, problems)
    elif which or every or dry_run or any(value is not None for value in said.values()):
        problems.append("--resume: it sends what is left of a redrive, and chooses and counts nothing")
    if problems:
        raise ConfigurationError(problems)
    wanted = dlq_desk.chosen(event_type, tenant, fingerprint, since, until, text)
    with dlq_desk.opened([group]) as desk:
        topic = desk.topic(group)
        if resume is not None:
            action = redrive_plan.find(desk.connection, group, _action_id(resume))
            if canary is not None:
                _check_outcomes(desk, group)
        else:
            wanted = redrive_plan.sendable(desk.config, topic, wanted)
            wanted = dlq_actions.choose(desk, group, which, wanted, text)
            if dry_run:
                dlq_actions.count_whole(desk, group, wanted)
                return
            if canary is not None:
                _check_outcomes(desk, group)
            begun = redrive_plan.begin(
                desk.connection,
                Kind.REDRIVE,
                group,
                wanted,
                who=dlq_desk.operator(who),
                why=why,
                chosen=dlq_desk.words(which, **said) + _pace(rate, canary, limit, seconds),
            )
            if begun is None:
                dlq_actions.nothing(desk, group)
                return
            action = begun
        carry_out(desk, action, rate, canary, limit, seconds)
        dlq_actions.tell_unfinished(desk, group)


def carry_out(
    desk: "Desk",
    action: "Action",
    rate: float | None = None,
    canary: int | None = None,
    limit: float = 1.0,
    canary_seconds: float = CANARY_SECONDS,
) -> None:
    """Do what an action was begun for, or what is left of it."""
    from offsetzero.errors import PublishError
    from offsetzero.producers.log import ANY_SIZE, LogProducer
    from offsetzero.retry import redrive as sending
    from offsetzero.retry import redrive_plan
    from offsetzero.retry.dead_letters import LetterReader
    from offsetzero.store import dead_letter_actions
    from offsetzero.store.dead_letter_actions import Kind
    from offsetzero.store.script import run
    from offsetzero.topics.names import Names

    names = Names(desk.config.kafka.namespace)
    again = f"offsetzero dlq redrive {action.group} --resume {action.id}{_pace(rate, canary, limit, canary_seconds)}"
    redrive_plan.lock(desk.connection, action.id)
    held = redrive_plan.discard(desk.connection, action) if action.kind is Kind.DISCARD else None
    with (
        stopped_by_signals() as stop,
        dlq_bar.bar(action) as tell,
        LogProducer(desk.config, delivery_timeout=30.0, more=ANY_SIZE) as producer,
        LetterReader(desk.config) as reader,
    ):
        work = sending.Redrive(
            desk.connection, producer, reader, names, action, rate=rate, progress=tell, stop=stop, discard=held
        )
        try:
            sent = work.send(canary)
            refused = _await_canaries(desk, action, sent, limit, canary_seconds, stop) if canary and sent else None
            if refused is None:
                work.send()
        except PublishError as error:
            raise PublishError(
                f"{error}\n{_told(action, work)}; what is left is for later: {again}", retriable=error.retriable
            ) from error
        if refused is not None:
            left = run(desk.connection, dead_letter_actions.release(action.id))
            run(desk.connection, dead_letter_actions.end(action.id, refused))
            print(f"{_told(action, work)}. Stopped: {refused}. {left:,} were not sent, and are open.", file=sys.stderr)
            raise typer.Exit(1)
    if stop.is_set():
        print(f"{_told(action, work)}. Interrupted; it goes on with: {again}", file=sys.stderr)
        raise typer.Exit(130)
    run(desk.connection, dead_letter_actions.end(action.id))
    if held is not None:
        keys = "its key" if len(held) == 1 else "their keys"
        print(f"{len(held):,} of them held up {keys}: {action.group} was told to go on.")
        return
    print(
        f"{_told(action, work)}. `offsetzero dlq list {action.group} --status redriven` shows what is not applied yet."
    )


def _await_canaries(
    desk: "Desk", action: "Action", sent: Sequence[int], limit: float, seconds: float, stop: threading.Event
) -> str | None:
    """Wait until the canaries tell; gives why the rest must stay, None when it may follow."""
    from offsetzero.clock import SYSTEM
    from offsetzero.errors import TopicError
    from offsetzero.retry.redrive_plan import Verdict, judge
    from offsetzero.store import dead_letter_actions
    from offsetzero.store.script import run
    from offsetzero.topics import lag

    deadline, told, alone = SYSTEM.monotonic() + seconds, "", False
    with contextlib.suppress(TopicError):  # who may not ask for its members may redrive all the same
        alone = not lag.group_state(desk.config, action.group).members
    if alone:
        print(
            f"No member of {action.group} runs: canaries end only when one does (`offsetzero groups list "
            f"{action.group}`). They are awaited for {seconds:g} s; Ctrl-C ends that.",
            file=sys.stderr,
        )
    while not stop.is_set():
        outcomes = run(desk.connection, dead_letter_actions.outcomes(action.id, sent))
        verdict = judge(len(sent), outcomes, limit)
        said = ", ".join(f"{count} {outcome}" for outcome, count in sorted(outcomes.items())) or "none has ended"
        if said != told:
            told = said
            print(f"Canaries: {len(sent)} sent, {said}", file=sys.stderr)
        if verdict is Verdict.GO:
            return None
        if verdict is Verdict.STOP:
            return f"of {len(sent)} canaries: {said}; more than {limit * 100:g}% failed"
        if SYSTEM.monotonic() > deadline:
            return f"of {len(sent)} canaries: {said}; the others have not ended in {seconds:g} s"
        stop.wait(_LOOK_SECONDS)
    return None


def _told(action: "Action", work: "Redrive") -> str:
    from offsetzero.cli import dlq_desk

    done = work.progress
    said = f"{dlq_desk.letters(done.sent)} sent to {action.group}"
    if done.ended:
        said += f", {done.ended:,} had been sent or handled, and have ended"
    if done.gone:
        said += f", {done.gone:,} are not in the log any more and stay open"
    if done.refused:
        said += f", {done.refused:,} were refused and stay open ({done.reason})"
    return said


def _check_outcomes(desk: "Desk", group: str) -> None:
    from offsetzero.errors import RedriveRefused
    from offsetzero.store import dead_letter_actions
    from offsetzero.store.script import run

    if not run(desk.connection, dead_letter_actions.keeps_outcomes(group)):
        raise RedriveRefused(
            f"--canary: group {group} writes no outcomes into this database, so nobody can tell how canaries end"
        )


def _pace(rate: float | None, canary: int | None, limit: float, canary_seconds: float) -> str:
    """The options that say how it is sent, where they are not the usual ones; `dlq_actions.PACE` finds them again."""
    said = "" if rate in (None, RATE) else f" --rate {rate:g}"
    if canary is not None:
        said += f" --canary {canary} --stop-above {limit:g}"
        said += "" if canary_seconds == CANARY_SECONDS else f" --canary-seconds {canary_seconds:g}"
    return said


def _share(text: str, problems: list[str]) -> float:
    try:
        share = float(text.removesuffix("%")) / (100 if text.endswith("%") else 1)
    except ValueError:
        share = -1.0
    if not 0 <= share <= 1:
        problems.append(f"--stop-above {text}: give a share, such as 5% or 0.05")
    return share


def _action_id(text: str) -> UUID:
    from offsetzero.errors import ConfigurationError

    try:
        return UUID(text)
    except ValueError:
        raise ConfigurationError(f"--resume {text}: give the id that `offsetzero dlq audit` shows") from None
