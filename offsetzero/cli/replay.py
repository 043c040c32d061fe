"""`offsetzero replay`: a group reads part of the log once more; shown first, done with --yes, and written down."""

import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Annotated

import typer

from offsetzero.cli.dlq_desk import Who, Why
from offsetzero.cli.group_names import HELP

if TYPE_CHECKING:
    from offsetzero.consumers.group import ConsumerGroup
    from offsetzero.consumers.replaying.looking import Wanted
    from offsetzero.consumers.replaying.spans import Span
    from offsetzero.generation import Generation
    from offsetzero.settings import Settings
    from offsetzero.store.database import Connection
    from offsetzero.store.replays import Way
    from offsetzero.store.script import Script
    from offsetzero.topics.points import Point

_ELSEWHERE = {
    "usage": "its table of windows is not taken back by offsets; `offsetzero rebuild usage` counts all anew",
    "ledger": "its rows follow from the dead-letter topics, and it goes on where the database says;"
    " `offsetzero rebuild ledger` makes them anew",
}
_POINT = "earliest, latest, an offset, a time (2026-01-31T12:00:00Z), or how long ago (-2h)."


def replay(
    name: Annotated[str, typer.Argument(metavar="GROUP", help=f"A group, or package.module:attribute. {HELP}")],
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
    wait: Annotated[
        float, typer.Option("--wait", min=1.0, help="Seconds that the members of a running group may take.")
    ] = 10.0,
    force: Annotated[
        bool, typer.Option("--force", help="What is done already is done again, in a generation opened for it.")
    ] = False,
    why: Why = "",
    who: Who = None,
    yes: Annotated[bool, typer.Option("--yes", help="Do it; without this it is only shown.")] = False,
) -> None:
    """Let a group read part of the log once more: shows how much that is, and does it with --yes.

    Without --to the group goes on from there, whether it runs or not. With it a side job runs the group's handlers
    over the span and ends, beside the group; it never goes beyond what the group has read. What is done already (its
    outcome is in the database) is skipped either way, unless --force has it done again: then effects happen twice, also
    those in other systems.

    Example: offsetzero replay indexer --from -2h --why "the index was restored from last night" --yes
    """
    from offsetzero import settings
    from offsetzero.cli import preview
    from offsetzero.cli import replay_view as view
    from offsetzero.cli import replay_ways as ways
    from offsetzero.consumers.replaying import looking, spans
    from offsetzero.store.replays import Way

    problems = _problems(end, key, event_type, rate, why, yes)
    first = _point("--from", start, problems)
    last = _point("--to", end, problems) if end is not None else None
    needed = "--to runs its handlers" if end is not None else "--force asks what it keeps" if force else ""
    group = _group(name, problems, needed)
    part = (end, topic, partition, key, event_type) != (None,) * 5 or start != "earliest"
    is_rebuild = force and group is not None and _is_rebuild(group, part, problems)
    if problems:
        from offsetzero.errors import ConfigurationError

        raise ConfigurationError(problems)
    assert first is not None  # noqa: S101 - else it is a problem
    if is_rebuild:
        _rebuild(name, why, who, yes)
        return
    config = settings.load(needs=frozenset({"kafka", "database"} if group and group.database else {"kafka"}))
    wanted = looking.Wanted(key.encode() if key is not None else None, event_type)
    with _database(config) as connection:
        generation = _generation(name, group, connection)
        found = spans.find(
            config,
            generation.name,
            first,
            last,
            sources=group.topics() if group else None,
            topic=topic,
            partition=partition,
        )
        way = Way.JOB if last is not None else _way(config, generation.name)
        outcomes = connection if group is None or group.database else None
        seen = looking.look(config, generation, found, wanted, outcomes)
        view.show(found, seen, wanted, to_end=last is None, forced=force)
        if force and connection is not None and generation.group == "notifier":
            view.deliveries(connection, seen)
        view.estimate(seen, rate, outcomes, generation.group, forced=force)
        if way is Way.LIVE:
            print(f"{generation.name} is running: its members are told, and go on from there.", file=sys.stderr)
        if not yes:
            preview.nothing_was_changed()
            return
        said = {"from": start, "to": end, "topic": topic, "partition": partition, "key": key, "type": event_type}
        asked = " ".join(f"--{option} {value}" for option, value in said.items() if value is not None)
        opens = _opens(generation, found, wanted) if force else None
        asked += " --force" if force else ""
        with ways.audited(connection, generation.name, way, who, why, asked, found, opens) as ended:
            match way:
                case Way.OFFSETS:
                    ways.move(config, generation.name, found)
                case Way.LIVE:
                    ways.tell_members(config, generation, found, wait, connection, ended)
                case Way.JOB:
                    assert group is not None  # noqa: S101 - it was needed
                    if force:
                        ways.reopen(config, generation, found, wait, ended)
                    ways.run_job(config, group, generation, found, wanted, ended, forced=force)


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


def _group(name: str, problems: list[str], needed: str) -> "ConsumerGroup | None":
    """The declaration, where there is one by that name; `needed` says what for, if it must be there."""
    from offsetzero.consumers import registry
    from offsetzero.errors import ConfigurationError
    from offsetzero.generation import Generation

    if name in _ELSEWHERE:
        problems.append(f"group {name}: {_ELSEWHERE[name]}")
        return None
    name = Generation.named(name).group
    if not needed and name not in registry.BUILT_IN and ":" not in name:
        return None
    try:
        return registry.load(name)
    except ConfigurationError as error:
        problems += [f"{one}: {needed}" if needed else one for one in error.problems]
        return None


def _is_rebuild(group: "ConsumerGroup", part: bool, problems: list[str]) -> bool:
    from offsetzero.consumers.replaying import forcing
    from offsetzero.errors import ConfigurationError

    try:
        return forcing.meant(group, whole=not part) is forcing.Forcing.REBUILD
    except ConfigurationError as error:
        problems += error.problems
        return False


def _rebuild(name: str, why: str, who: str | None, yes: bool) -> None:
    from offsetzero.cli.rebuild import rebuild

    print(f"{name} is a projection: --force is `offsetzero rebuild {name}`, which makes it anew.", file=sys.stderr)
    rebuild(name, why=why, who=who, yes=yes)


def _opens(generation: "Generation", found: "Sequence[Span]", wanted: "Wanted") -> "Script[int]":
    from offsetzero.errors import ConfigurationError
    from offsetzero.store import forced

    spans = [(one.topic_id, one.partition, one.first, one.end) for one in found if one.records]
    if not spans:
        raise ConfigurationError(
            f"--force: {generation.name} has read none of these records: there is nothing to do again"
        )
    return forced.open_generation(generation.group, spans, wanted.key, wanted.event_type)


def _generation(name: str, group: "ConsumerGroup | None", connection: "Connection | None") -> "Generation":
    """The one that is meant: that which is read, unless another is named, as Kafka knows it (indexer.g2)."""
    from offsetzero.generation import Generation
    from offsetzero.store import generations
    from offsetzero.store.script import run

    typed = Generation.named(name).group
    said = (group.name if group is not None else typed) + name.removeprefix(typed)  # not package.module:attribute
    return run(connection, generations.meant(said)) if connection is not None else Generation.named(said)


def _way(config: "Settings", group: str) -> "Way":
    """How a group comes to read from elsewhere."""
    from offsetzero.consumers import reset
    from offsetzero.store.replays import Way
    from offsetzero.topics import lag

    found = lag.group_state(config, group)  # of a KIP-848 group that rebalances the client says `unknown`
    return Way.OFFSETS if found.state in reset.STOPPED and not found.members else Way.LIVE


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
