"""`offsetzero rebuild --until`: what a projection was at a time, in a generation with a name that is never read."""

import re
import sys
from datetime import UTC, datetime
from typing import TYPE_CHECKING

import typer

from offsetzero.cli import preview, side_jobs
from offsetzero.cli.rebuild import EXIT_INTERRUPTED
from offsetzero.clock import SYSTEM
from offsetzero.consumers.rebuilding import beginning, inspecting
from offsetzero.errors import ConfigurationError, RebuildRefused
from offsetzero.generation import Generation
from offsetzero.store import generations
from offsetzero.store.generations import Known
from offsetzero.store.script import run
from offsetzero.topics import points

if TYPE_CHECKING:
    from offsetzero.cli.rebuild_run import Rebuild
    from offsetzero.settings import Settings

_NAME = re.compile(r"[A-Za-z][A-Za-z0-9._-]{0,49}", re.ASCII)


def read_time(text: str) -> datetime:
    """The time that `--until` names.

    Raises:
        ConfigurationError: it is none, or has not come yet.
    """
    now = SYSTEM.now()
    found = points.ago(text[1:], now) if text.startswith("-") else points.time(text)
    if found is None:
        raise ConfigurationError(
            f"--until {text}: give a time with its zone, such as 2026-01-31T12:00:00Z, or how long ago: -30m, -2h, -7d"
        )
    if found > now:
        raise ConfigurationError(f"--until {text}: that time has not come yet")
    return found.astimezone(UTC)


def read_name(name: str | None, until: datetime) -> str:
    """The name of the generation; by default made of the time.

    Raises:
        ConfigurationError: it is not one that could be typed everywhere.
    """
    if name is None:
        return f"until-{until:%Y%m%dT%H%M%SZ}"
    if not _NAME.fullmatch(name):
        raise ConfigurationError(f"--as {name}: give a letter, then letters, digits, dots, _ and -, 50 at most")
    return name


def make(config: "Settings", one: "Rebuild", until: datetime, name: str, *, yes: bool) -> None:
    """Make it, or go on with it."""
    group = one.group.name
    found = beginning.known(one.connection, group)
    there = next((it for it in found if it.name == name), None)
    if there is not None and (there.until != until or there.filled_at is not None):
        _refuse(group, there, until)
        return
    for sentence in one.unseen():
        print(sentence)
    number = there.number if there is not None else 0
    spans = inspecting.until(config, Generation(group, number), one.topics, until)
    total = sum(span.records for span in spans)
    print(
        f"{group}: a generation {name} will hold what {total:,} records before {until.isoformat(timespec='seconds')}"
        f" make; it is never read."
    )
    if not yes:
        preview.nothing_was_changed()
        return
    side_jobs.begin_logs(config, f"rebuild-{group}")
    one.alone.begin()
    generation = Generation(group, number)
    if not number:
        generation = beginning.begin(config, one.connection, one.group, one.tiers, name, until)
    job, _ = side_jobs.run(
        f"{group} {name}",
        total,
        lambda progress: inspecting.Filling(one.group, config, spans, generation, progress),
    )
    if not job.is_complete:
        print(
            f"Interrupted. What goes on: offsetzero rebuild {one.name} --until {until.isoformat()} --as {name} --yes",
            file=sys.stderr,
        )
        raise typer.Exit(EXIT_INTERRUPTED)
    run(one.connection, generations.filled(generation))
    print(f"Generation {generation.number}, {name}, is whole: {side_jobs.outcomes(job)}.", file=sys.stderr)
    if job.outcomes.get("dead-lettered"):
        print(f"Dead letters are left out: see `offsetzero dlq list {generation.name}`.", file=sys.stderr)
    read = next(it.number for it in found if it.is_read)
    print(
        f"Compare it with `offsetzero diff {one.name} {name} {read}`; drop it with `offsetzero rebuild {one.name}"
        f" --prune --as {name}`.",
        file=sys.stderr,
    )


def named(one: "Rebuild", name: str) -> Known:
    """The generation that has a name.

    Raises:
        RebuildRefused: there is none.
    """
    found = beginning.known(one.connection, one.group.name)
    there = next((it for it in found if it.name == name), None)
    if there is None:
        names = ", ".join(it.name for it in found if it.name is not None) or "none"
        raise RebuildRefused(f"group {one.group.name}: no generation has the name {name}; there are: {names}")
    return there


def _refuse(group: str, there: Known, until: datetime) -> None:
    if there.until == until:
        print(f"{group}: generation {there.number}, {there.name}, is there, and whole.")
        return
    raise RebuildRefused(
        f"group {group}: the name {there.name} is taken, for {there.until:%Y-%m-%d %H:%M:%SZ}; drop that one with"
        f" --prune --as {there.name}, or give another name"
    )
