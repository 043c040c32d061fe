"""`offsetzero log archive` and `missing`: what is kept beside the log, and what a new beginning would not see."""

import json
from typing import TYPE_CHECKING, Annotated

import typer

if TYPE_CHECKING:
    from offsetzero.history.archive import Segment


def archive(
    topic: Annotated[str, typer.Argument(metavar="TOPIC", help="A topic, by the name that `topics list` shows.")],
    end: Annotated[str, typer.Option("--to", help="Up to here: latest, a time, or how long ago: -2h, -7d.")] = "latest",
) -> None:
    """Put what of a topic is not archived yet into the object store, as Avro files that are read back and compared.

    Nothing is deleted from the log: that is what retention is for. Safe to repeat, and to run twice at once.

    Example: offsetzero log archive documents --to -7d
    """
    from offsetzero import settings
    from offsetzero.clock import SYSTEM
    from offsetzero.history import archive as archiving
    from offsetzero.history import spans
    from offsetzero.topics import points

    until = points.parse_with_ago("--to", end, SYSTEM.now())
    config = settings.load(needs=frozenset({"kafka"}))
    wanted = spans.resolve(config, topic, "earliest", until)

    def tell(segment: "Segment") -> None:
        place = f"{topic}/{segment.partition}"
        print(f"{place}: offsets {segment.first} to {segment.end - 1}, {segment.records:,} records: {segment.key}")

    made = archiving.archive(config, topic, wanted, tell)
    print(f"{sum(one.records for one in made):,} records in {len(made)} new segments in {config.objects}")


def missing(
    group: Annotated[str, typer.Argument(metavar="GROUP", help="indexer, notifier, …, or package.module:attribute")],
    as_json: Annotated[bool, typer.Option("--json", help="One JSON array.")] = False,
) -> None:
    """Say what a group that begins at offset zero of its topics, or is rebuilt, would not see, because it is deleted.

    What the archive has of it is counted: it can be read from there.

    Example: offsetzero log missing indexer
    """
    from offsetzero import settings
    from offsetzero.consumers import registry
    from offsetzero.history import missing as looking

    topics = registry.load(group).topics()
    config = settings.load(needs=frozenset({"kafka"}))
    found = looking.from_zero(config, topics)
    if as_json:
        rows = [
            {
                "topic": one.topic,
                "partition": one.partition,
                "deleted": one.deleted,
                "archived": one.archived,
                "missing": one.missing,
                "gaps": one.gaps,
                "first_retained": one.low,
                "since": one.since.isoformat() if one.since else None,
            }
            for one in found
        ]
        print(json.dumps(rows, indent=2))
        return
    for one in found:
        print(one)
    if not found:
        print(f"Nothing of {', '.join(topics)} is deleted: {group} would see everything from offset zero on.")
