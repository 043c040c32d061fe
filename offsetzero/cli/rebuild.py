"""`offsetzero rebuild`: make a projection anew beside the one that is read, and have the new one read."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated

import typer

from offsetzero.cli import preview, rebuild_view
from offsetzero.cli.dlq_desk import Who, Why
from offsetzero.cli.signals import sigterm_as_ctrl_c

if TYPE_CHECKING:
    from offsetzero.cli.rebuild_run import Rebuild
    from offsetzero.settings import Settings

EXIT_REFUSED = 3
"""Events that readers see now would be missing; nothing was switched."""
EXIT_INTERRUPTED = 4
"""By Ctrl-C or SIGTERM: the same command goes on where it was."""

_TAKES = {
    "--until": ("--as",),
    "--rollback": ("--processes", "--accept", "--stand-still"),
    "--prune": ("--as",),
    "--abandon": (),
}

Name = Annotated[str, typer.Argument(metavar="GROUP", help="A projection: indexer, catalogue, package.module:name")]


def rebuild(
    name: Name,
    processes: Annotated[
        int | None, typer.Option("--processes", min=1, help="That read at once; by default one a core.")
    ] = None,
    switch: Annotated[
        bool, typer.Option("--switch/--no-switch", help="Have it read once it is ready; or only make it.")
    ] = True,
    accept: Annotated[
        bool, typer.Option("--accept", help="Switch although events are in the old one and not in the new one.")
    ] = False,
    rollback: Annotated[
        bool, typer.Option("--rollback", help="Have the one read again that was read before; it catches up first.")
    ] = False,
    prune: Annotated[
        bool, typer.Option("--prune", help="Drop those that were read before, and all that is theirs.")
    ] = False,
    abandon: Annotated[bool, typer.Option("--abandon", help="Drop the one that was begun and was never read.")] = False,
    stand_still: Annotated[
        float | None,
        typer.Option(
            "--stand-still",
            metavar="SECONDS",
            min=1,
            max=600,
            help="How long the one that is read may change nothing for the switch; two thirds of it may be spent on"
            " waiting for retries; 30 where nothing is said.",
        ),
    ] = None,
    until: Annotated[
        str | None,
        typer.Option("--until", help="Only make what it was at this time, to be looked at: an ISO time, or -2h."),
    ] = None,
    called: Annotated[
        str | None, typer.Option("--as", metavar="NAME", help="Of the one that --until makes, or that --prune drops.")
    ] = None,
    why: Why = "",
    who: Who = None,
    yes: Annotated[bool, typer.Option("--yes", help="Do it; without this it is only shown.")] = False,
) -> None:
    """Make a projection anew from offset zero, beside the one that is read; then have the new one read.

    Readers see the old one until all of the new one is there; no request sees both. The group's members go on
    meanwhile, and move over by themselves. Interrupted anywhere, the same command goes on where it was. What the new
    one publishes, and the ends of its runs, are held back until it is read, and happen once.

    Exit status 3: events that readers see now would be missing; they are listed, and nothing was switched.

    Example: offsetzero rebuild indexer --why "chunks are smaller now" --yes
    """
    from offsetzero import settings
    from offsetzero.cli import dlq_desk, rebuild_others
    from offsetzero.cli.rebuild_run import Rebuild
    from offsetzero.consumers import registry
    from offsetzero.errors import ConfigurationError

    modes = {"--until": until is not None, "--rollback": rollback, "--prune": prune, "--abandon": abandon}
    options = {
        "--processes": processes is not None,
        "--no-switch": not switch,
        "--accept": accept,
        "--stand-still": stand_still is not None,
        "--as": called is not None,
    }
    chosen, given = ([option for option, on in some.items() if on] for some in (modes, options))
    problems = _unlike(chosen, given)
    if yes and switch and not (why.strip() or prune or abandon or until is not None):
        problems.append("--why: say why; it is kept with who and when")
    if name in rebuild_others.KNOWN:
        if chosen or given:
            raise ConfigurationError([f"group {name}: it has no generations: of the options it takes --yes alone"])
        rebuild_others.KNOWN[name](yes)
        return
    group = registry.load(name)
    if group.projection is None:
        problems.append(
            f"group {group.name}: it is no projection, so there is nothing to make anew; declare it with projection=…,"
            f" or let it read once more with `offsetzero replay {name} --from earliest`"
        )
    if problems:
        raise ConfigurationError(problems)
    config = settings.load(needs=frozenset({"kafka", "database"}))
    one = Rebuild(config, group, name, rebuild_view.say)
    try:
        if until is not None:
            from offsetzero.cli import rebuild_until

            at = rebuild_until.read_time(until)
            rebuild_until.make(config, one, at, rebuild_until.read_name(called, at), yes=yes)
        elif prune or abandon:
            _drop(config, one, called, abandoned=abandon, yes=yes)
        else:
            wish = _Wish(processes, switch, accept, rollback, why, dlq_desk.operator(who), stand_still)
            _make(config, one, wish, yes=yes)
    except KeyboardInterrupt:
        rebuild_view.say("Interrupted. The same command goes on where it was; --abandon drops what was never read.")
        raise typer.Exit(EXIT_INTERRUPTED) from None
    finally:
        one.close()


def _unlike(chosen: Sequence[str], given: Sequence[str]) -> list[str]:
    """What is wrong with options that do not go together: none is passed over."""
    if len(chosen) > 1:
        return [f"{' and '.join(chosen)} do not go together"]
    if chosen:
        takes = _TAKES[chosen[0]]
        alone = f"{chosen[0]}: of the others it takes {' and '.join([*takes, '--yes'])} alone"
        return [alone] if set(given) - set(takes) else []
    if "--as" in given:
        return ["--as: it is the name of what --until makes, or --prune drops"]
    if "--no-switch" in given and (idle := [one for one in given if one in ("--accept", "--stand-still")]):
        return [f"{' and '.join(idle)}: for the switch, which --no-switch leaves out"]
    return []


@dataclass(frozen=True, slots=True)
class _Wish:
    processes: int | None
    switch: bool
    accept: bool
    back: bool
    why: str
    who: str
    stand_still: float | None


def _make(config: "Settings", one: "Rebuild", wish: _Wish, *, yes: bool) -> None:
    from offsetzero.cli import rebuild_archive, rebuild_switch
    from offsetzero.cli.rebuild_members import Members
    from offsetzero.cli.rebuild_progress import processes, progress
    from offsetzero.consumers.rebuilding import indexing, switching
    from offsetzero.consumers.rebuilding.switching import WouldLose
    from offsetzero.generation import Generation

    plan = one.plan(back=wish.back)
    count = processes(wish.processes, plan.reach)
    rebuild_view.show(one, plan, count, switch=wish.switch)
    if not yes:
        preview.nothing_was_changed()
        return
    generation = one.begin(plan)
    old = Generation(one.group.name, plan.read.number)
    rebuild_archive.read(config, one, generation, rebuild_view.say)
    try:
        with sigterm_as_ctrl_c(), Members(one.name, generation, count) as members:
            with progress(generation.name) as shown:
                one.fill(generation, members, shown, whole=not wish.switch)
            if made := indexing.make(config, one.group, generation):
                rebuild_view.say(f"Made of all that generation {generation.number} has read: {', '.join(made)}")
            if not wish.switch:
                rebuild_view.say(
                    f"Generation {generation.number} has read what was in the log. The same command without --no-switch"
                    " goes on from there, and has it read."
                )
                return
            freeze = wish.stand_still or switching.FREEZE_SECONDS
            asked = rebuild_switch.Wish(wish.who, wish.why, wish.accept, freeze)
            rebuild_switch.switch(one, plan, generation, members, asked)
            rebuild_switch.hand_over(one, old, members)
            if indexing.differs(config, one.group, plan.read):
                rebuild_view.say(
                    f"Members that have the settings of before end with an error: start {one.name} with the new ones."
                )
    except WouldLose as error:
        rebuild_view.tell_losses(error)
        raise typer.Exit(EXIT_REFUSED) from None
    except KeyboardInterrupt:
        if not one.is_read(generation):
            raise
        rebuild_view.say(
            f"Interrupted, and generation {generation.number} of {one.group.name} is read: nothing is left to do. The"
            " group's own members move over by themselves."
        )
    rebuild_view.say(
        f"Generation {old.number} is kept: `offsetzero rebuild {one.name} --rollback` has it read again, --prune"
        " drops it."
    )


def _drop(config: "Settings", one: "Rebuild", called: str | None, *, abandoned: bool, yes: bool) -> None:
    from offsetzero.cli import rebuild_until
    from offsetzero.consumers.rebuilding import beginning, dropping
    from offsetzero.errors import RebuildRefused

    found = beginning.known(one.connection, one.group.name)
    if called is not None:
        numbers = [rebuild_until.named(one, called).number]
    elif abandoned:
        unfinished = beginning.unfinished(found)
        if unfinished is None:
            raise RebuildRefused(f"group {one.group.name}: no generation was begun and never read")
        numbers = [unfinished.number]
    else:
        numbers = [it.number for it in found if it.read_at is not None and not it.is_read]
    if not numbers:
        print(f"{one.group.name}: only generation {next(it.number for it in found if it.is_read)} is there.")
    else:
        shown = ", ".join(map(str, numbers))
        count = rebuild_view.count(len(numbers), "generation")
        print(f"{one.group.name}: {count} will be dropped: {shown}.")
        print("Their tables, retry and dead-letter topics go, and vectors of models that no other generation is of;")
        print("what the group has done stays known.")
    if not yes:
        preview.nothing_was_changed()
        return
    one.alone.begin()
    dropping.drop(config, one.connection, one.group.name, numbers, one.tiers, lambda text: rebuild_view.say(f"{text}."))
