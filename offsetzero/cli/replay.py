"""`offsetzero replay`: a group reads part of the log once more; shown first, done with --yes, and written down."""

import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Annotated, Any
from uuid import UUID

import typer

from offsetzero.cli.dlq_desk import Who, Why

if TYPE_CHECKING:
    from offsetzero.consumers.group import ConsumerGroup
    from offsetzero.consumers.replaying.looking import Seen, Wanted
    from offsetzero.consumers.replaying.spans import Span
    from offsetzero.settings import Settings
    from offsetzero.store.database import Connection
    from offsetzero.store.replays import Way
    from offsetzero.topics.points import Point

EXIT_UNFINISHED = 4
"""A side job was interrupted, or a handler did not end in time."""
_POINT = "earliest, latest, an offset, a time (2026-01-31T12:00:00Z), or how long ago (-2h)."


def replay(
    name: Annotated[str, typer.Argument(metavar="GROUP", help="A group, or package.module:attribute.")],
    start: Annotated[str, typer.Option("--from", metavar="POINT", help=f"The first record: {_POINT}")],
    end: Annotated[
        str | None,
        typer.Option(
            "--to", metavar="POINT", help="Up to there, by a side job that ends; the group's own offsets stay."
        ),
    ] = None,
    topic: Annotated[str | None, typer.Option("--topic", help="One of its sources; by default all.")] = None,
    partition: Annotated[int | None, typer.Option("--partition", help="One partition number.")] = None,
    key: Annotated[str | None, typer.Option("--key", help="With --to: only records of this key.")] = None,
    event_type: Annotated[str | None, typer.Option("--type", help="With --to: only events of this type.")] = None,
    rate: Annotated[
        float | None, typer.Option("--rate", help="Records a second, for the estimate; by default as measured.")
    ] = None,
    why: Why = "",
    who: Who = None,
    yes: Annotated[bool, typer.Option("--yes", help="Do it; without this it is only shown.")] = False,
) -> None:
    """Let a group read part of the log once more: shows how much that is, and does it with --yes.

    Without --to the group goes on from there. With it a side job runs the group's handlers over the span and ends,
    beside the group; it never goes beyond what the group has read. What is done already (its outcome is in the
    database) is skipped either way.

    Example: offsetzero replay indexer --from -2h --why "the index was restored from last night" --yes
    """
    from offsetzero import settings
    from offsetzero.consumers.replaying import looking, spans
    from offsetzero.store.replays import Way

    problems = _problems(end, key, event_type, rate, why, yes)
    first = _point("--from", start, problems)
    last = _point("--to", end, problems) if end is not None else None
    group = _group(name, problems, needed=end is not None)
    if problems:
        from offsetzero.errors import ConfigurationError

        raise ConfigurationError(problems)
    assert first is not None  # noqa: S101 - else it is a problem
    config = settings.load(needs=frozenset({"kafka", "database"} if group and group.database else {"kafka"}))
    group_name = group.name if group else name
    found = spans.find(
        config,
        group_name,
        first,
        last,
        sources=group.topics() if group else None,
        topic=topic,
        partition=partition,
    )
    if last is None:
        _check_stopped(config, group_name)
    wanted = looking.Wanted(key.encode() if key is not None else None, event_type)
    with _database(config) as connection:
        has_outcomes = connection is not None and (group is None or group.database)
        seen = looking.look(config, group_name, found, wanted, connection if has_outcomes else None)
        _show(found, seen, wanted, to_end=last is None)
        _estimate(seen, rate, connection if has_outcomes else None, group_name)
        if not yes:
            print("Nothing was changed: give --yes to do it.", file=sys.stderr)
            return
        said = {"from": start, "to": end, "topic": topic, "partition": partition, "key": key, "type": event_type}
        asked = " ".join(f"--{option} {value}" for option, value in said.items() if value is not None)
        way = Way.JOB if last is not None else Way.OFFSETS
        with _audited(connection, group_name, way, who, why, asked, found) as ended:
            if last is None:
                _move(config, group_name, found)
            else:
                assert group is not None  # noqa: S101 - it was needed
                _run_job(config, group, found, wanted, ended)


def _problems(
    end: str | None, key: str | None, event_type: str | None, rate: float | None, why: str, yes: bool
) -> list[str]:
    problems = [
        f"{option}: only with --to: offsets, with which a group reads on, cannot leave records out"
        for option, value in (("--key", key), ("--type", event_type))
        if value is not None and end is None
    ]
    if rate is not None and not 0 < rate < float("inf"):
        problems.append(f"--rate {rate:g}: it must be more than 0")
    if yes and not why.strip():
        problems.append("--why: say why; it is kept with who and when")
    return problems


def _point(option: str, text: str, problems: list[str]) -> "Point | None":
    from offsetzero.clock import SYSTEM
    from offsetzero.errors import ConfigurationError
    from offsetzero.topics import points

    try:
        return points.parse_with_ago(option, text, SYSTEM.now())
    except ConfigurationError as error:
        problems += error.problems
        return None


def _group(name: str, problems: list[str], *, needed: bool) -> "ConsumerGroup | None":
    """The declaration, where there is one by that name; a side job needs its handlers."""
    from offsetzero.consumers import registry
    from offsetzero.errors import ConfigurationError

    if not needed and name not in registry.BUILT_IN and ":" not in name:
        return None
    try:
        return registry.load(name)
    except ConfigurationError as error:
        problems += [f"{one}: --to runs its handlers" if needed else one for one in error.problems]
        return None


def _check_stopped(config: "Settings", group: str) -> None:
    from offsetzero.consumers import reset
    from offsetzero.errors import GroupStopped
    from offsetzero.topics import lag

    state = lag.group_state(config, group).state
    if state not in reset.STOPPED:
        raise GroupStopped(
            f"group {group} has members (it is {state}): stop them first, or replay beside them with --to"
        )


@contextmanager
def _database(config: "Settings") -> "Iterator[Connection | None]":
    """The database that the settings name, if they name one."""
    import psycopg

    url = config.database_url.get_secret_value()
    if not url:
        yield None
        return
    with psycopg.connect(url, autocommit=True, connect_timeout=10) as connection:
        yield connection


def _show(found: "Sequence[Span]", seen: "Seen", wanted: "Wanted", *, to_end: bool) -> None:
    from offsetzero.cli import rows

    columns = ("topic/partition", "from", "to", "records", "skipped" if to_end else "left to the group")
    shown = [
        [
            f"{one.topic}/{one.partition}",
            str(one.first),
            str(max(one.first, one.end)),
            str(one.records),
            str(one.move.skipped if to_end else one.left),
        ]
        for one in found
    ]
    rows.show(columns, shown, right=set(columns[1:]))
    about = "" if seen.is_whole else "about "
    said = f"{seen.total:,} records"
    if seen.first_ms is not None and seen.last_ms is not None:
        said += f", written from {_time(seen.first_ms)} to {_time(seen.last_ms)}"
    if not wanted.is_all:
        said += f"; {about}{seen.scaled(seen.meant):,} of them are meant"
    print(said, file=sys.stderr)
    if seen.identities:
        print(
            f"{about.capitalize()}{seen.scaled(seen.done):,} of them have their outcome, and are not done again.",
            file=sys.stderr,
        )
    else:
        if seen.meant:
            print("This group keeps no outcomes in a database: all of them are done again.", file=sys.stderr)
    if any(one.left for one in found):
        print("What lies beyond the group's own position it will read by itself.", file=sys.stderr)


def _time(at_ms: int) -> str:
    return datetime.fromtimestamp(at_ms / 1000, UTC).isoformat(sep=" ", timespec="seconds")


def _estimate(seen: "Seen", rate: float | None, connection: "Connection | None", group: str) -> None:
    """How long it takes at most."""
    import psycopg

    from offsetzero.store import replays
    from offsetzero.store.script import run

    if not seen.total:
        return
    source = "as stated"
    if rate is None and connection is not None:
        source = "as in the busiest minute of this group"
        try:
            with connection.transaction():
                connection.execute("SET LOCAL statement_timeout = '5s'")
                rate = run(connection, replays.busiest_minute(group))
        except psycopg.errors.QueryCanceled:
            rate = None
    if rate is None:
        print("How long it takes is not known: state what the group does in a second with --rate.", file=sys.stderr)
        return
    todo = seen.scaled(seen.meant - seen.done)
    print(
        f"About {_duration(todo / rate)} for {todo:,} records at {rate:,.0f} a second ({source}); those that are not"
        " done again take less.",
        file=sys.stderr,
    )


def _duration(seconds: float) -> str:
    if seconds < 90:
        return f"{seconds:.0f} s"
    return f"{seconds / 60:.0f} min" if seconds < 5_400 else f"{seconds / 3_600:.1f} h"


@contextmanager
def _audited(
    connection: "Connection | None",
    group: str,
    way: "Way",
    who: str | None,
    why: str,
    asked: str,
    found: "Sequence[Span]",
) -> "Iterator[list[str]]":
    """Write who does what and why, and how it ended: what the block has put into the list, else `done`."""
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
    run(connection, replays.begin(replay_id, group, way, dlq_desk.operator(who), why, asked, places, records))
    try:
        yield ended
    except BaseException as error:
        ended.append(str(error) or type(error).__name__)
        raise
    finally:
        run(connection, replays.end(replay_id, "; ".join(ended) or replays.DONE))


def _move(config: "Settings", group: str, found: "Sequence[Span]") -> None:
    from offsetzero.consumers import reset

    reset.apply(config, group, [one.move for one in found])
    print(f"Done: {group} goes on there when it is started.", file=sys.stderr)


def _run_job(
    config: "Settings", group: "ConsumerGroup", found: "Sequence[Span]", wanted: "Wanted", ended: list[str]
) -> None:
    from offsetzero import logs
    from offsetzero.cli import bars
    from offsetzero.cli.dlq_bar import stopped_by_signals
    from offsetzero.consumers.replaying.job import Progress, SideJob

    logs.configure(process=f"replay-{group.name}", form=config.log_format, level=config.log_level)
    total = sum(one.records for one in found)
    with bars.bar(f"replay {group.name}", total) as tell, stopped_by_signals() as stop:

        def progress(now: Progress) -> None:
            tell(now.done)
            if stop.is_set():
                job.stop()

        job = SideJob(group, config, found, wanted, progress)
        left: list[Any] = job.run()
    said = ", ".join(f"{count:,} {outcome}" for outcome, count in sorted(job.outcomes.items())) or "nothing"
    ended.append(f"{'done' if job.is_complete else 'interrupted'}: {said}")
    print(f"{job.meant:,} records were read and meant: {said}.", file=sys.stderr)
    if not job.is_complete:
        print(
            f"Interrupted, with {len(left):,} handlers that had not ended: the same command does the rest.",
            file=sys.stderr,
        )
        raise typer.Exit(EXIT_UNFINISHED)
