"""`offsetzero usage`: have the group `usage` count anew."""

import sys
from typing import Annotated

import typer

app = typer.Typer(no_args_is_help=True, help="The counts of each tenant: have them made anew.")


@app.callback()
def _usage() -> None:
    """The counts of each tenant: have them made anew."""


@app.command("rebuild")
def rebuild_usage(
    yes: Annotated[bool, typer.Option("--yes", help="Do it; without this it is only shown.")] = False,
) -> None:
    """Count anew from offset zero: resets the offsets of the stopped group usage, and empties its changelog.

    Shows what would be done, and does it with --yes. Example: offsetzero usage rebuild --yes
    """
    from offsetzero import settings
    from offsetzero.consumers.groups.usage import rebuild

    config = settings.load(needs=frozenset({"kafka"}))
    planned = rebuild.plan(config)
    print(f"The group usage will read {planned.records:,} records again, and count those that are not past their time.")
    if not yes:
        print("Nothing was changed: give --yes to do it.", file=sys.stderr)
        return
    rebuild.apply(config, planned)
    print("Done: it counts anew when it is started.", file=sys.stderr)
