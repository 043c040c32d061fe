"""What commands say that show what they would do, and do it with --yes."""

import sys
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from offsetzero.store.database import Connection


def nothing_was_changed() -> None:
    """The end of a preview."""
    print("Nothing was changed: give --yes to do it.", file=sys.stderr)


def busiest_rate(connection: "Connection", group: str) -> float | None:
    """Events a second that a group has done in its busiest minute; None when that is not known, or not soon.

    Args:
        connection: to the database with the group's outcomes; in autocommit.
        group: its name, without a generation.
    """
    import psycopg

    from offsetzero.store import replays
    from offsetzero.store.script import run

    try:
        with connection.transaction():
            connection.execute("SET LOCAL statement_timeout = '5s'")
            return run(connection, replays.busiest_minute(group))
    except psycopg.errors.QueryCanceled:
        return None


def duration(seconds: float) -> str:
    """For people."""
    if seconds < 90:
        return f"{seconds:.0f} s"
    return f"{seconds / 60:.0f} min" if seconds < 5_400 else f"{seconds / 3_600:.1f} h"
