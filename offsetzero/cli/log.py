"""`offsetzero log`: records decoded, and kept: show, tail, export, import, archive."""

import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Annotated

import typer

from offsetzero.cli import log_archive, log_files
from offsetzero.cli.signals import sigterm_as_ctrl_c

if TYPE_CHECKING:
    from offsetzero.settings import Settings

app = typer.Typer(no_args_is_help=True, help="Records decoded, and kept: show, tail, export, import, archive.")
app.command("export")(log_files.export)
app.command("import")(log_files.import_file)
app.command("archive")(log_archive.archive)
app.command("missing")(log_archive.missing)

Topic = Annotated[str, typer.Argument(metavar="TOPIC", help="A topic, by the name that `topics list` shows.")]
AsJson = Annotated[bool, typer.Option("--json", help="A JSON object for each record, one a line.")]


@app.command("show")
def show(
    topic: Topic,
    key: Annotated[str, typer.Option("--key", help="The entity's id, as it is the key of its records.")],
    everywhere: Annotated[
        bool, typer.Option("--all-partitions", help="Look into all, for keys of producers with another partitioner.")
    ] = False,
    as_json: AsJson = False,
) -> None:
    """Show an entity's history: the records of its key, decoded, with headers, in their order.

    Only the partition of the key is read.

    Example: offsetzero log show documents --key 0198c0de-0000-7000-8000-000000000001
    """
    from offsetzero.cli import log_view
    from offsetzero.errors import TopicError
    from offsetzero.history import looking
    from offsetzero.topics import retained
    from offsetzero.topics.partitioner import partition_of

    settings = _settings()
    count = retained.existing(settings, topic)
    if looking.is_compacted(settings, topic):
        _note(f"{topic} is compacted: of each key the last record is kept, older ones may be gone.")
    low = retained.bounds(settings, topic)[home := partition_of(key.encode(), count)].low
    if low:
        _note(f"{topic}/{home}: what was before offset {low} is deleted.")
    found = 0
    with _quiet_pipe():
        for seen in looking.history(settings, topic, key.encode(), everywhere=everywhere):
            found += 1
            print(log_view.as_json(topic, seen) if as_json else log_view.block(topic, seen))
    if not found:
        where = f"any of its {count} partitions" if everywhere else f"partition {home}, which is its partition"
        more = "" if everywhere else "; --all-partitions looks into the others"
        raise TopicError(f"{topic}: no record with the key {key} in {where}{more}")


@app.command("tail")
def tail(
    topic: Topic,
    count: Annotated[int, typer.Option("-n", min=0, help="So many of the last records.")] = 20,
    follow: Annotated[bool, typer.Option("--follow", "-f", help="Go on with what comes, until Ctrl-C.")] = False,
    event_type: Annotated[str | None, typer.Option("--type", help="Only of this event type.")] = None,
    tenant: Annotated[str | None, typer.Option("--tenant", help="Only of this tenant.")] = None,
    as_json: AsJson = False,
) -> None:
    """Show the last records of a topic, decoded, a line each, by their times.

    Example: offsetzero log tail documents -n 50 --follow --type document.uploaded
    """
    from offsetzero.cli import log_view
    from offsetzero.history import looking
    from offsetzero.history.decoding import Decoded

    settings = _settings()

    def wanted(one: Decoded) -> bool:
        meta = one.meta
        if event_type is None and tenant is None:
            return True
        return meta is not None and event_type in (None, meta.type) and tenant in (None, meta.tenant_id)

    line = log_view.as_json if as_json else log_view.line
    with _until_stopped(), _quiet_pipe():
        newest, ends = looking.last(settings, topic, count, wanted)
        for seen in newest:
            print(line(topic, seen))
        if follow:
            sys.stdout.flush()
            for seen in looking.follow(settings, topic, ends, wanted):
                print(line(topic, seen), flush=True)


def _settings() -> "Settings":
    from offsetzero import settings

    return settings.load(needs=frozenset({"kafka"}))


def _note(text: str) -> None:
    print(text, file=sys.stderr)


@contextmanager
def _quiet_pipe() -> Iterator[None]:
    """Who reads the output may leave, as `head` does: that ends the command well."""
    try:
        yield
        sys.stdout.flush()
    except BrokenPipeError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())  # else the interpreter's last flush fails, too
        raise typer.Exit(0) from None


@contextmanager
def _until_stopped() -> Iterator[None]:
    """Ctrl-C and SIGTERM end the block, and that is no error."""
    try:
        with sigterm_as_ctrl_c():
            yield
    except KeyboardInterrupt:
        raise typer.Exit(0) from None
