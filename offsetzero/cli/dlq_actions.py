"""`offsetzero dlq discard` and `audit`, and what they share with `redrive`."""

import json
import re
import sys
from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Annotated

import typer

from offsetzero.cli import group_names
from offsetzero.cli.dlq_desk import All, AsJson, EventType, Fingerprint, Since, Tenant, Text, Until, Which, Who, Why

if TYPE_CHECKING:
    from offsetzero.cli.dlq_desk import Desk
    from offsetzero.store.dead_letters import Filter

PACE = re.compile(r"( --rate \S+)?( --canary \d+ --stop-above \S+( --canary-seconds \S+)?)?$")
"""In the words of an action, the options of its redrive that say how it is sent."""
AT_ONCE = 20_000
"""Places of dead letters that are kept in memory."""
DryRun = Annotated[bool, typer.Option("--dry-run", help="Only count what it would be done to.")]


def discard(
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
) -> None:
    """Give dead letters up: they are never sent again. Their records stay in the log, and in the ledger."""
    from offsetzero.cli import dlq_desk, dlq_redrive
    from offsetzero.errors import ConfigurationError
    from offsetzero.retry import redrive_plan
    from offsetzero.store.dead_letter_actions import Kind
    from offsetzero.store.dead_letter_status import Status

    problems: list[str] = []
    options = {"type": event_type, "tenant": tenant, "fingerprint": fingerprint, "since": since, "until": until}
    said = {**options, "text": text}
    check_choice(which, said, every, why, dry_run, problems)
    if problems:
        raise ConfigurationError(problems)
    wanted = dlq_desk.chosen(event_type, tenant, fingerprint, since, until, text)
    with dlq_desk.opened([group]) as desk:
        wanted = replace(wanted, groups=[group], status=Status.OPEN, free=True)
        wanted = choose(desk, group, which, wanted, text)
        if dry_run:
            count(desk, group, wanted, "discarded")
            return
        action = redrive_plan.begin(
            desk.connection,
            Kind.DISCARD,
            group,
            wanted,
            who=dlq_desk.operator(who),
            why=why,
            chosen=dlq_desk.words(which, **said),
        )
        if action is None:
            nothing(desk, group)
            return
        held = redrive_plan.discard(desk.connection, action)
        print(f"{dlq_desk.letters(action.letters)} of {group} discarded ({action.id}).")
        if held:
            dlq_redrive.carry_out(desk, action)


def audit(
    group: Annotated[
        str | None, typer.Argument(help=f"A group; by default all. {group_names.HELP}", callback=group_names.if_any)
    ] = None,
    as_json: AsJson = False,
) -> None:
    """List what operators did to dead letters: who, when, why, on which, and how it ended."""
    import psycopg

    from offsetzero import settings
    from offsetzero.cli import rows
    from offsetzero.store import dead_letter_actions
    from offsetzero.store.script import run

    config = settings.load(needs=frozenset({"database"}))
    with psycopg.connect(config.database_url.get_secret_value(), connect_timeout=10) as connection:
        found = run(connection, dead_letter_actions.history(group))
    shown = [
        {
            "at": one.at.isoformat(timespec="seconds"),
            "action": str(one.kind),
            "group": one.group,
            "who": one.who,
            "letters": one.letters,
            "done": one.done,
            "ended": one.ended,
            "id": str(one.id),
            "chosen": one.chosen,
            "why": one.why,
        }
        for one in found
    ]
    if as_json:
        print(json.dumps(shown, indent=2))
    elif not shown:
        print(f"Nothing was done yet to dead letters of {group or 'any group'}.")
    else:
        columns = tuple(shown[0])
        lines = [["not yet" if value is None else str(value) for value in row.values()] for row in shown]
        rows.show(columns, lines, first=8, right={"letters", "done"})


def choose(desk: "Desk", group: str, which: Sequence[str] | None, wanted: "Filter", text: str | None) -> "Filter":
    """Narrow a filter to dead letters that were named, or that have a text.

    Raises:
        RedriveRefused: one that was named cannot be taken.
    """
    from offsetzero.cli import dlq_desk
    from offsetzero.retry import redrive_plan

    if which:
        named = [desk.named(group, one) for one in which]
        redrive_plan.check_named(named, wanted)
        wanted = replace(wanted, places=[one.at for one in named])
    return dlq_desk.with_text(desk, wanted, text)


def check_choice(
    which: Sequence[str] | None, said: dict[str, str | None], every: bool, why: str, dry_run: bool, problems: list[str]
) -> None:
    """Add to the problems what is missing: which dead letters, and why."""
    if not which and not every and not any(value is not None for value in said.values()):
        problems.append("which dead letters? Name places or event ids, a filter such as --fingerprint, or --all")
    if not why.strip() and not dry_run:
        problems.append("--why: say the reason; it is kept in the audit")


def count(desk: "Desk", group: str, wanted: "Filter", what: str) -> None:
    """Say how many are meant, and what an interrupted action has taken."""
    from offsetzero.cli import dlq_desk
    from offsetzero.store import dead_letters
    from offsetzero.store.script import run

    print(f"{dlq_desk.letters(run(desk.connection, dead_letters.count(wanted)))} of {group} would be {what}.")
    tell_unfinished(desk, group)


def count_whole(desk: "Desk", group: str, wanted: "Filter") -> None:
    """Say how many a redrive would send: those that the log has, with their payload."""
    from offsetzero.cli import dlq_desk
    from offsetzero.retry.dead_letters import LetterReader
    from offsetzero.store import dead_letter_pages

    meant = whole = 0
    with LetterReader(desk.config) as reader:
        for page in dead_letter_pages.places(desk.connection, wanted, AT_ONCE):
            meant += len(page)
            touched = {(partition, offset) for partition, offset, edited in page if edited}
            whole += reader.count_whole(group, [one[:2] for one in page], touched)
    print(f"{dlq_desk.letters(whole)} of {group} would be redriven.")
    if lost := meant - whole:
        print(f"{lost:,} would stay open: the log, or their source, does not have them any more.", file=sys.stderr)
    tell_unfinished(desk, group)


def nothing(desk: "Desk", group: str) -> None:
    """Say so, and name what an interrupted action has taken."""
    print(f"No open dead letters of {group} are meant: nothing was done.")
    tell_unfinished(desk, group)


def tell_unfinished(desk: "Desk", group: str) -> None:
    """Name the actions that have taken dead letters which are still open: no other one is about these."""
    from offsetzero.store import dead_letter_actions
    from offsetzero.store.script import run

    for one in run(desk.connection, dead_letter_actions.history(group, unfinished=True)):
        print(
            f"A {one.kind} of {one.at.isoformat(timespec='seconds')} by {one.who} has taken {one.letters - one.done:,} "
            "more and has not ended. Unless it runs: "
            f"offsetzero dlq redrive {group} --resume {one.id}{pace[0] if (pace := PACE.search(one.chosen)) else ''}",
            file=sys.stderr,
        )
