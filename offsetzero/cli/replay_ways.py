"""The ways in which `offsetzero replay` has records read once more, and what is written down about each."""

import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from typing import TYPE_CHECKING
from uuid import UUID

import typer

if TYPE_CHECKING:
    from offsetzero.consumers.group import ConsumerGroup
    from offsetzero.consumers.replaying.live import Told
    from offsetzero.consumers.replaying.looking import Wanted
    from offsetzero.consumers.replaying.spans import Span
    from offsetzero.generation import Generation
    from offsetzero.settings import Settings
    from offsetzero.store.database import Connection
    from offsetzero.store.replays import Way
    from offsetzero.store.script import Script
    from offsetzero.store.starts import Place

EXIT_UNFINISHED = 4
"""A side job was interrupted, a handler did not end in time, or not all partitions of a running group were moved."""


@contextmanager
def audited(
    connection: "Connection | None",
    group: str,
    way: "Way",
    who: str | None,
    why: str,
    asked: str,
    found: "Sequence[Span]",
    opens: "Script[int] | None" = None,
) -> "Iterator[list[str]]":
    """Write who does what and why, and how it ended: what the block has put into the list, else `done`.

    Args:
        connection: to the database, in autocommit; None where there is none.
        group: as Kafka knows it.
        way: how it is done.
        who: for the audit, like `why` and `asked`, the options.
        why: see there.
        asked: see there.
        found: the partitions.
        opens: opens a generation, of a replay that is forced; in the transaction of the audit.
    """
    from offsetzero.cli import dlq_desk
    from offsetzero.schemas.ids import uuid7
    from offsetzero.store import replays
    from offsetzero.store.script import run

    ended: list[str] = []
    if connection is None:
        print("No database is named: nothing is written down about this.", file=sys.stderr)
        yield ended
        return
    replay_id = UUID(str(uuid7()))
    places = ", ".join(f"{one.topic}/{one.partition}: {one.first}-{max(one.first, one.end)}" for one in found)
    records = sum(one.records for one in found)
    operator = dlq_desk.operator(who)
    with connection.transaction():
        number = run(connection, opens) if opens is not None else None
        run(connection, replays.begin(replay_id, group, way, operator, why, asked, places, records, number))
    try:
        yield ended
    except typer.Exit:  # it is told already how that went
        _tell_open(number)
        raise
    except BaseException as error:
        ended.append(str(error) or type(error).__name__)
        _tell_open(number)
        raise
    finally:
        run(connection, replays.end(replay_id, "; ".join(ended) or replays.DONE))


def _tell_open(number: int | None) -> None:
    if number is not None:
        print(
            f"Generation {number} is open: what was not handled in it yet is done by the same command without --force;"
            " with it, all is done once more.",
            file=sys.stderr,
        )


def move(config: "Settings", group: str, found: "Sequence[Span]") -> None:
    """Give a stopped group other offsets."""
    from offsetzero.consumers import reset

    reset.apply(config, group, [one.move for one in found])
    print(f"Done: {group} goes on there when it is started.", file=sys.stderr)


def tell_members(
    config: "Settings",
    generation: "Generation",
    found: "Sequence[Span]",
    seconds: float,
    connection: "Connection | None",
    ended: list[str],
) -> None:
    """Have the members of a running group read from there, and show what became of it.

    Args:
        config: names the cluster.
        generation: whose members.
        found: the partitions.
        seconds: that members may take.
        connection: to the database, if there is one.
        ended: is told how it went.
    """
    from offsetzero.cli import rows
    from offsetzero.consumers.replaying import live
    from offsetzero.consumers.replaying.live import Became
    from offsetzero.store import positions
    from offsetzero.store.script import run

    said: set[Place] = set()

    def ownerless(places: "Sequence[Place]") -> None:
        if new := [place for place in places if place not in said]:
            said.update(new)
            shown = ", ".join(f"{topic}/{number}" for topic, number in new)
            print(f"No member has {shown} now: waiting, {seconds:g} s in all.", file=sys.stderr)

    told = live.replay(config, generation.name, found, seconds, ownerless)
    kept = run(connection, positions.of_generation(generation)) if connection is not None else {}
    shown = []
    for one in told:
        detail = one.detail
        if one.became is not Became.APPLIED:
            at = kept.get(one.span.place)
            detail = _standing(one, at.offset if at is not None else None)
        place = f"{one.span.topic}/{one.span.partition}"
        shown.append([place, str(one.became), "" if one.offset is None else str(one.offset), detail])
    rows.show(("topic/partition", "became", "reads from", "why"), shown, right={"reads from"})
    counts = {became: sum(one.became is became for one in told) for became in Became}
    summary = ", ".join(f"{count:,} {became}" for became, count in counts.items() if count)
    ended.append("; ".join([summary, *(f"{row[0]}: {row[3]}" for row in shown if row[3])]))
    if counts[Became.APPLIED] == len(told):
        print(f"Done: {generation.name} reads from there, and was not stopped.", file=sys.stderr)
        return
    print(f"Partitions: {summary}. Those that were applied read from there.", file=sys.stderr)
    raise typer.Exit(EXIT_UNFINISHED)


def reopen(
    config: "Settings", generation: "Generation", found: "Sequence[Span]", seconds: float, ended: list[str]
) -> None:
    """Before a side job in a generation that was just opened, have the members of a running group learn of it.

    They begin anew where they are: what the job appends to a retry topic they handle in that generation, too.

    Args:
        config: names the cluster.
        generation: whose members.
        found: the partitions.
        seconds: that members may take.
        ended: is told when it was prevented.
    """
    from offsetzero.consumers import reset
    from offsetzero.consumers.replaying import live
    from offsetzero.consumers.replaying.live import Became
    from offsetzero.topics import lag

    state = lag.group_state(config, generation.name)
    read = [one for one in found if one.records and one.committed is not None]
    if (state.state in reset.STOPPED and not state.members) or not read:
        return
    told = live.replay(config, generation.name, [replace(one, first=one.committed or 0) for one in read], seconds)
    if missing := [one for one in told if one.became is not Became.APPLIED]:
        said = "; ".join(
            f"{one.span.topic}/{one.span.partition}: {one.became}{f': {one.detail}' if one.detail else ''}"
            for one in missing
        )
        ended.append(f"not begun: not all members learned of the generation: {said}")
        print(f"Nothing was handled: not all members of {generation.name} were told of it: {said}", file=sys.stderr)
        raise typer.Exit(EXIT_UNFINISHED)


def _standing(one: "Told", kept: int | None) -> str:
    """Where a partition is of which nobody has said that it was moved."""
    from offsetzero.consumers.replaying.live import Became

    why = one.detail or ("no member has answered" if one.became is Became.NO_ANSWER else "")
    name, at = ("the database has", kept) if kept is not None else ("Kafka has", one.committed)
    if at is None:
        return f"{why}; no position is known of it"
    before = one.span.committed
    if at == one.span.first != before:
        return f"{why}; {name} its position at {at}: it was set back, and is read from there by who has it next"
    moved = "as before" if at == before else f"it was {before}" if before is not None else "the first"
    return f"{why}; {name} its position at {at}, {moved}"


def run_job(
    config: "Settings",
    group: "ConsumerGroup",
    generation: "Generation",
    found: "Sequence[Span]",
    wanted: "Wanted",
    ended: list[str],
    *,
    forced: bool = False,
) -> None:
    """Run the handlers of a group over the records, beside it.

    Args:
        config: names the servers.
        group: the declaration.
        generation: whose outcomes and retry topics are those of the job.
        found: the partitions.
        wanted: which records are meant.
        ended: is told how it went.
        forced: whether a generation was opened for it: the same command would open another one.
    """
    from offsetzero.cli import side_jobs
    from offsetzero.consumers.replaying.job import SideJob

    side_jobs.begin_logs(config, f"replay-{group.name}")
    number = generation.number if group.projection else None
    job, left = side_jobs.run(
        f"replay {group.name}",
        sum(one.records for one in found),
        lambda progress: SideJob(group, config, found, wanted, progress, generation=number),
    )
    said = side_jobs.outcomes(job)
    ended.append(f"{'done' if job.is_complete else 'interrupted'}: {said}")
    print(f"{job.meant:,} records were read and meant: {said}.", file=sys.stderr)
    if not job.is_complete:
        again = "" if forced else ": the same command does the rest"  # `_tell_open` says which one
        print(f"Interrupted, with {len(left):,} handlers that had not ended{again}.", file=sys.stderr)
        raise typer.Exit(EXIT_UNFINISHED)
