"""`offsetzero groups`: run a consumer group, see members, offsets and lag, give it other positions."""

import json
import sys
from typing import TYPE_CHECKING, Annotated, Any

import typer

from offsetzero.cli import group_names
from offsetzero.cli.group_run import run_group

if TYPE_CHECKING:
    from offsetzero.topics.lag import GroupState, PartitionLag

app = typer.Typer(no_args_is_help=True, help="Run a group, see members, offsets and lag, reset positions.")
app.command("run")(run_group)


@app.command("list")
def list_groups(
    names: Annotated[
        list[str] | None,
        typer.Argument(help=f"Groups; by default all of the cluster. {group_names.HELP}", callback=group_names.listed),
    ] = None,
    partitions: Annotated[bool, typer.Option("--partitions", help="A line for each partition.")] = False,
    as_json: Annotated[bool, typer.Option("--json", help="One JSON array, partitions included.")] = False,
) -> None:
    """List consumer groups: state, members, committed offsets, lag in records.

    Lag is the high watermark minus the committed offset, over source and retry topics.
    """
    from offsetzero import settings
    from offsetzero.errors import TopicError
    from offsetzero.topics import lag

    config = settings.load(needs=frozenset({"kafka"}))
    rows = []
    existing = lag.groups(config)
    for name in names or existing:
        state = lag.group_state(config, name)
        assigned = {topic for member in state.members for topic, _ in member.assignment}
        offsets = lag.group_offsets(config, name, assigned=assigned)
        if name not in existing and not offsets:
            raise TopicError(f"there is no group {name}; `offsetzero groups list` shows those of the cluster")
        rows.append(_row(state, offsets))
    if as_json:
        print(json.dumps(rows, indent=2))
        return
    if not rows:
        print("No consumer groups yet: start one with `offsetzero groups run NAME`.")
        return
    _print(rows, partitions)


@app.command("reset")
def reset_group(
    name: group_names.Name,
    to: Annotated[
        str,
        typer.Option(
            "--to", help="earliest, latest, an offset, or a time, such as -2h: the first record not older than it."
        ),
    ],
    topic: Annotated[
        str | None, typer.Option("--topic", help="One topic; by default the sources, not the retry topics.")
    ] = None,
    partition: Annotated[int | None, typer.Option("--partition", help="One partition of that topic.")] = None,
    yes: Annotated[bool, typer.Option("--yes", help="Do it; without this it is only shown.")] = False,
) -> None:
    """Give a group without running members other positions: shows what would change, and changes it with --yes."""
    from offsetzero import settings
    from offsetzero.cli import preview, rows
    from offsetzero.clock import SYSTEM
    from offsetzero.consumers import reset
    from offsetzero.topics import points

    target = points.parse_with_ago("--to", to, SYSTEM.now())
    config = settings.load(needs=frozenset({"kafka"}))
    moves = reset.plan(config, name, target, topic, partition)
    shown = [
        [
            f"{one.topic}/{one.partition}",
            "-" if one.old is None else str(one.old),
            str(one.new),
            str(one.skipped),
            str(one.repeated),
        ]
        for one in moves
    ]
    columns = ("topic/partition", "committed", "new", "skipped", "repeated")
    rows.show(columns, shown, right=set(columns[1:]))
    if any(one.repeated for one in moves):
        print("What the group has handled in its database is read again, and not applied again.", file=sys.stderr)
    if not yes:
        preview.nothing_was_changed()
        return
    if not config.database_url.get_secret_value():
        print("No database is named: what is recorded in one stays as it is.", file=sys.stderr)
    reset.apply(config, name, moves)
    print(f"Done: {name} goes on there when it is started.", file=sys.stderr)


def _print(groups: list[dict[str, Any]], partitions: bool) -> None:
    from offsetzero.cli import rows

    right = {"members", "partitions", "committed", "end", "lag"}
    if not partitions:
        shown = [
            [row["group"], row["state"], str(len(row["members"])), str(len(row["partitions"])), str(row["lag"])]
            for row in groups
        ]
        rows.show(("group", "state", "members", "partitions", "lag"), shown, right=right)
        return
    shown = []
    for row in groups:
        for one in row["partitions"]:
            committed = "-" if one["committed"] is None else str(one["committed"])
            place = f"{one['topic']}/{one['partition']}"
            shown.append([row["group"], row["state"], place, committed, str(one["end"]), str(one["lag"])])
    rows.show(("group", "state", "topic/partition", "committed", "end", "lag"), shown, right=right)


def _row(state: "GroupState", offsets: "list[PartitionLag]") -> dict[str, Any]:
    return {
        "group": state.group,
        "state": state.state,
        "lag": sum(one.lag for one in offsets),
        "members": [
            {
                "id": member.id,
                "client_id": member.client_id,
                "host": member.host,
                "assignment": [f"{topic}/{number}" for topic, number in member.assignment],
            }
            for member in state.members
        ],
        "partitions": [
            {
                "topic": one.topic,
                "partition": one.partition,
                "committed": one.committed,
                "start": one.low,
                "end": one.high,
                "lag": one.lag,
            }
            for one in offsets
        ],
    }
