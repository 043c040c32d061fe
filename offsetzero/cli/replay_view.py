"""What `offsetzero replay` shows before it does anything: the records, and how long they take."""

import sys
from collections.abc import Sequence
from datetime import UTC, datetime
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from offsetzero.consumers.replaying.looking import Seen, Wanted
    from offsetzero.consumers.replaying.spans import Span
    from offsetzero.store.database import Connection


def show(found: "Sequence[Span]", seen: "Seen", wanted: "Wanted", *, to_end: bool, forced: bool = False) -> None:
    """The offsets of each partition, and what is known of their records.

    Args:
        found: the partitions.
        seen: a look at them.
        wanted: which records are meant.
        to_end: whether the group goes on from there; else a side job ends at their end.
        forced: whether what is done is done again.
    """
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
    for one in found:
        if (before := min(one.end, one.low) - one.first) > 0:
            lost = f"; nobody has {one.gone:,} of them" if one.gone else ""
            print(
                f"{one.topic}/{one.partition}: the log begins at {one.low}, so {before:,} offsets are of the"
                f" archive{lost}.",
                file=sys.stderr,
            )
    about = "" if seen.is_whole else "about "
    said = "1 record" if seen.total == 1 else f"{seen.total:,} records"
    if seen.first_ms is not None and seen.last_ms is not None:
        said += f", written from {_time(seen.first_ms)} to {_time(seen.last_ms)}"
    if not wanted.is_all:
        said += f"; {about}{seen.scaled(seen.meant):,} of them are meant"
    print(said, file=sys.stderr)
    if forced:
        print(
            f"--force: {about}{seen.scaled(seen.done):,} of them have their outcome, and are done again in a"
            " generation that is opened for that. What handlers write, publish and send to other systems happens"
            " once more.",
            file=sys.stderr,
        )
    elif seen.identities:
        print(
            f"{about.capitalize()}{seen.scaled(seen.done):,} of them have their outcome, and are not done again.",
            file=sys.stderr,
        )
        if seen.owed:
            owed = f"{about}{seen.scaled(seen.owed):,}".capitalize()
            print(
                f"{owed} were to be done again by a forced replay, and are not yet: they are done now.", file=sys.stderr
            )
    else:
        if seen.meant:
            print("This group keeps no outcomes in a database: all of them are done again.", file=sys.stderr)
    if any(one.left for one in found):
        print("What lies beyond the group's own position it will read by itself.", file=sys.stderr)


def _time(at_ms: int) -> str:
    return datetime.fromtimestamp(at_ms / 1000, UTC).isoformat(sep=" ", timespec="seconds")


def deliveries(connection: "Connection", seen: "Seen") -> None:
    """How many webhooks go out again when the notifier handles these records again."""
    from offsetzero.store import webhooks
    from offsetzero.store.script import run

    count, receivers = run(connection, webhooks.would_go(seen.kinds))
    about = "" if seen.is_whole else "about "
    print(
        f"That is {about}{seen.scaled(count):,} webhook deliveries to {receivers:,} subscriptions, as these are now;"
        " each has the webhook-id that it had.",
        file=sys.stderr,
    )


def estimate(
    seen: "Seen", rate: float | None, connection: "Connection | None", group: str, *, forced: bool = False
) -> None:
    """How long it takes at most.

    Args:
        seen: the records.
        rate: how many a second, as it was stated.
        connection: to the database with the group's outcomes; None where there is none.
        group: its name, without a generation.
        forced: whether what is done is done again.
    """
    from offsetzero.cli import preview

    todo = seen.scaled(seen.meant if forced else seen.meant - seen.done)
    if not todo:
        if seen.meant:
            what = "All of it" if seen.is_whole else "All that was looked at"
            print(f"{what} is done already: with --force it is done again.", file=sys.stderr)
        return
    source = "as stated"
    if rate is None and connection is not None:
        source = "as in the busiest minute of this group"
        rate = preview.busiest_rate(connection, group)
    if rate is None:
        print("How long it takes is not known: state what the group does in a second with --rate.", file=sys.stderr)
        return
    less = "." if forced else "; those that are not done again take less."
    print(
        f"About {preview.duration(todo / rate)} for {todo:,} records at {rate:,.0f} a second ({source}){less}",
        file=sys.stderr,
    )
