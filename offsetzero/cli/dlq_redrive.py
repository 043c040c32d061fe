"""`offsetzero dlq redrive`: dead letters back to their group, with canaries, at a rate, interruptible."""

import sys
from typing import TYPE_CHECKING, Annotated
from uuid import UUID

import typer

from offsetzero.cli import dlq_actions, dlq_bar, dlq_canaries, group_names
from offsetzero.cli.dlq_actions import DryRun
from offsetzero.cli.dlq_desk import All, EventType, Fingerprint, Since, Tenant, Text, Until, Which, Who, Why
from offsetzero.cli.signals import stopped_by_signals

if TYPE_CHECKING:
    from offsetzero.cli.dlq_canaries import Canaries
    from offsetzero.cli.dlq_desk import Desk
    from offsetzero.retry.redrive import Redrive
    from offsetzero.store.dead_letter_actions import Action

RATE = 100.0


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
    canary: dlq_canaries.Count = None,
    stop_above: dlq_canaries.StopAbove = None,
    canary_seconds: dlq_canaries.Seconds = None,
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
    canaries = dlq_canaries.of_options(canary, stop_above, canary_seconds, problems)
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
            if canaries is not None:
                dlq_canaries.check_outcomes(desk, group)
        else:
            wanted = redrive_plan.sendable(desk.config, topic, wanted)
            wanted = dlq_actions.choose(desk, group, which, wanted, text)
            if dry_run:
                dlq_actions.count_whole(desk, group, wanted)
                return
            if canaries is not None:
                dlq_canaries.check_outcomes(desk, group)
            begun = redrive_plan.begin(
                desk.connection,
                Kind.REDRIVE,
                group,
                wanted,
                who=dlq_desk.operator(who),
                why=why,
                chosen=dlq_desk.words(which, **said) + _pace(rate, canaries),
            )
            if begun is None:
                dlq_actions.nothing(desk, group)
                return
            action = begun
        carry_out(desk, action, rate, canaries)
        dlq_actions.tell_unfinished(desk, group)


def carry_out(
    desk: "Desk",
    action: "Action",
    rate: float | None = None,
    canaries: "Canaries | None" = None,
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
    again = f"offsetzero dlq redrive {action.group} --resume {action.id}{_pace(rate, canaries)}"
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
            refused = None if canaries is None else dlq_canaries.try_out(desk, action, work, canaries, stop)
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
        f"{_told(action, work)}. `offsetzero dlq list {action.group} --status redriven` shows what has not ended yet."
    )


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


def _pace(rate: float | None, canaries: "Canaries | None") -> str:
    """The options that say how it is sent, where they are not the usual ones; `dlq_actions.PACE` finds them again."""
    return ("" if rate in (None, RATE) else f" --rate {rate:g}") + (str(canaries) if canaries is not None else "")


def _action_id(text: str) -> UUID:
    from offsetzero.errors import ConfigurationError

    try:
        return UUID(text)
    except ValueError:
        raise ConfigurationError(f"--resume {text}: give the id that `offsetzero dlq audit` shows") from None
