"""`offsetzero log export` and `import`: part of a topic as a file, and back."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from offsetzero.history.kinds import Kind

if TYPE_CHECKING:
    from offsetzero.settings import Settings

_FROM_TO = "earliest, latest, an offset (with --partition), a time, or how long ago: -30m, -2h, -7d."


def export(
    topic: Annotated[str, typer.Argument(metavar="TOPIC", help="A topic, by the name that `topics list` shows.")],
    output: Annotated[Path, typer.Option("-o", "--output", metavar="FILE", help="Where to, with a manifest beside.")],
    form: Annotated[Kind, typer.Option("--format", help="JSON lines, Avro object container file, or Parquet.")],
    first: Annotated[str, typer.Option("--from", help=f"The first record: {_FROM_TO}")] = "earliest",
    end: Annotated[str, typer.Option("--to", help="The end, exclusive, likewise.")] = "latest",
    partition: Annotated[int | None, typer.Option("--partition", help="Only of this partition.")] = None,
    overwrite: Annotated[bool, typer.Option("--overwrite", help="Replace a file that is there.")] = False,
) -> None:
    """Write part of a topic to a file: streamed, and under its name only when it is whole.

    Keys, headers, values and times are kept byte for byte; the manifest beside the file names partitions, offsets,
    writer schemas and the file's SHA-256.

    Example: offsetzero log export documents --format jsonl --from -7d -o week.jsonl
    """
    from offsetzero.clock import SYSTEM
    from offsetzero.history import exporting, spans
    from offsetzero.topics import points

    now = SYSTEM.now()
    begin, until = points.parse_with_ago("--from", first, now), points.parse_with_ago("--to", end, now)
    settings = _settings()
    wanted = spans.resolve(settings, topic, begin, until, partition)
    with _bar() as show:
        total = sum(end - first for first, end in wanted.values())
        made = exporting.export(
            settings,
            topic,
            wanted,
            form,
            output,
            overwrite=overwrite,
            tell=lambda done: show(f"export {topic}", done, total),
        )
    print(f"{made.records:,} records of {len(made.parts)} partitions, {made.bytes:,} bytes: {output}")


def import_file(
    file: Annotated[Path, typer.Argument(metavar="FILE", help="As `log export` wrote it, with its manifest beside.")],
    topic: Annotated[str | None, typer.Option("--topic", help="Into this topic; by default the exported one.")] = None,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Only count what would be appended.")] = False,
    keep_unreadable: Annotated[
        bool, typer.Option("--keep-unreadable", help="Take records whose writer schema nobody has, as they are.")
    ] = False,
) -> None:
    """Append those records of a file that the topic has not got; an event counts once, by its source and id.

    Interrupted in any way, the same command goes on. Of two imports into one topic the later one ends the other.

    Example: offsetzero log import week.jsonl --dry-run
    """
    from offsetzero.history import importing

    settings = _settings()
    with _bar() as show:
        done = importing.import_file(settings, file, topic, dry_run=dry_run, keep_unreadable=keep_unreadable, tell=show)
    verb = "would be appended" if dry_run else "appended"
    print(
        f"{done.appended:,} records {verb} to {done.topic}; {done.present:,} of {done.records:,} were there already"
        + (f"; {done.repeated:,} are events that the file has more than once" if done.repeated else "")
    )


def _settings() -> "Settings":
    from offsetzero import settings

    return settings.load(needs=frozenset({"kafka"}))


@contextmanager
def _bar() -> Iterator[Callable[[str, int, int], None]]:
    """A progress bar in a terminal, on standard error; elsewhere the end says all."""
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

    console = Console(stderr=True)
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn())
    with Progress(*columns, console=console, disable=not console.is_terminal) as bar:
        task = bar.add_task("", total=None)
        yield lambda step, done, total: bar.update(task, description=step, completed=done, total=total)
