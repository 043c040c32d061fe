"""What `offsetzero rebuild` shows: what would be done, how it goes, and what readers would lose."""

import sys
from typing import TYPE_CHECKING

from offsetzero.cli import preview

if TYPE_CHECKING:
    from offsetzero.cli.rebuild_run import Plan, Rebuild
    from offsetzero.consumers.rebuilding.reach import Reach
    from offsetzero.consumers.rebuilding.switching import WouldLose

MAX_LISTED = 20


def show(one: "Rebuild", plan: "Plan", processes: int, *, switch: bool) -> None:
    """What would be done, by how many processes, and how much there is to read."""
    read, target, reach = plan.read, plan.target, plan.reach
    if plan.back:
        assert target is not None  # noqa: S101 - else there is nothing to go back to
        what = f"generation {target.number}, which was read before, catches up"
    elif target is not None:
        what = f"generation {target.number}, begun at {target.created_at:%Y-%m-%d %H:%M:%SZ}, goes on"
    else:
        what = "a new generation begins at offset zero"
    then = "then it is read" if switch else "it is not read yet"
    print(
        f"{one.group.name}: generation {read.number} is read; {what}, with {count(processes, 'process', 'es')}; {then}."
    )
    sources = ", ".join(one.topics)
    print(f"{reach.left:,} of {reach.total:,} records of {sources} are to be read{_estimate(one, reach)}.")
    for sentence in plan.gone:
        print(sentence)


def _estimate(one: "Rebuild", reach: "Reach") -> str:
    rate = preview.busiest_rate(one.connection, one.group.name) if reach.left else None
    if not rate:
        return ""
    return (
        f"; about {preview.duration(reach.left / rate)} at {rate:,.0f} a second, as in the busiest minute of this group"
    )


def tell_losses(error: "WouldLose") -> None:
    """What readers would lose, and what to do about it."""
    for event in error.events[:MAX_LISTED]:
        print(event)
    if (more := error.count - MAX_LISTED) > 0:
        print(f"… and {more:,} more")
    if error.due_ms is not None:
        say(
            f"{error}. They only wait for a retry, and it does not help to wait while others come to wait: with a"
            " longer --stand-still none do; or go on without them, until they are done, with --accept."
        )
        return
    say(f"{error}. Mend and redrive them there, and give the same command again; or go on without them with --accept.")


def count(number: int, name: str, plural: str = "s") -> str:
    """A number of something, in words."""
    return f"{number} {name}" if number == 1 else f"{number} {name}{plural}"


def say(text: str) -> None:
    """Tell it at once."""
    print(text, file=sys.stderr, flush=True)
