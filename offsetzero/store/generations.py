"""Generations of projections, and which of them is read: the pointer (tables `group_generations`, `group_pointers`).

A transaction of a generation begins with `enter`: it learns whether the pointer is at it, and the pointer stays there
until the transaction ends, for whoever moves it waits for that.
"""

from collections.abc import Sequence
from dataclasses import dataclass

from offsetzero.errors import ConfigurationError
from offsetzero.generation import Generation
from offsetzero.store.script import Script

LOCK = 0x6F7A_0003
"""First half of the advisory lock of a pointer; the other is the hash of the group's name."""


@dataclass(frozen=True, slots=True)
class Standing:
    """How a generation stands to the pointer of its group, until the transaction ends.

    Attributes:
        is_read: whether the pointer is at it: then what it does has effects besides its tables.
        others: the numbers of all others that there have ever been.
        is_frozen: it is read, and is to change nothing for a moment.
        owes: it is read, and something that it has withheld before is still to be done.
    """

    is_read: bool
    others: Sequence[int] = ()
    is_frozen: bool = False
    owes: bool = False


ALONE = Standing(is_read=True)
"""Of a group that is no projection."""

_ENTER = "SELECT pg_advisory_xact_lock_shared(%s, hashtext(%s))"
_STANDING = (
    "SELECT p.generation = g.generation,"
    " ARRAY(SELECT o.generation FROM group_generations o WHERE o.group_name = g.group_name"
    " AND o.generation <> g.generation),"
    " p.generation = g.generation AND coalesce(p.frozen_until > clock_timestamp(), false),"
    " p.generation = g.generation AND EXISTS (SELECT FROM withheld_effects w WHERE w.group_name = g.group_name"
    " AND w.generation = g.generation)"
    " FROM group_generations g JOIN group_pointers p USING (group_name)"
    " WHERE g.group_name = %s AND g.generation = %s AND g.dropped_at IS NULL"
)
_READ = (
    "SELECT generation, set_config('search_path',"
    " quote_ident(group_name || '_g' || generation) || ', ' || current_setting('search_path'), true)"
    " FROM group_pointers WHERE group_name = %s"
)


def enter(generation: Generation) -> Script[Standing | None]:
    """Begin a transaction of a generation; first in it, at READ COMMITTED. None when the generation was dropped.

    The lock is a statement of its own: what is read in one that has waited for a lock is from before the wait.
    """
    yield _ENTER, (LOCK, generation.group)
    rows = yield _STANDING, (generation.group, generation.number)
    return Standing(*rows[0]) if rows else None


def stay(group: str) -> Script[None]:
    """Have none of a group's generations dropped, and its pointer where it is, until the transaction ends."""
    yield _ENTER, (LOCK, group)


def read(group: str) -> Script[int]:
    """Begin to read a projection: its tables are found by their names until the transaction ends.

    First in a REPEATABLE READ transaction, so that the pointer and all that is read later are of one moment.

    Returns:
        The number of the generation that is read.

    Raises:
        ConfigurationError: the group has no projection in this database.
    """
    rows = yield _READ, (group,)
    if not rows:
        raise ConfigurationError(f"group {group}: it has no projection yet; `offsetzero groups run {group}` makes it")
    return int(rows[0][0])


def active(group: str) -> Script[int | None]:
    """The generation that is read; None when there is none yet."""
    rows = yield "SELECT generation FROM group_pointers WHERE group_name = %s", (group,)
    return int(rows[0][0]) if rows else None


def numbers(group: str) -> Script[list[int]]:
    """Those that exist, in their order."""
    rows = yield (
        "SELECT generation FROM group_generations WHERE group_name = %s AND dropped_at IS NULL ORDER BY 1",
        (group,),
    )
    return [int(row[0]) for row in rows]


def add(generation: Generation) -> Script[None]:
    """Record a generation whose tables are made in this transaction; the first of its group is read from now on."""
    yield (
        "INSERT INTO group_generations (group_name, generation) VALUES (%s, %s)",
        (generation.group, generation.number),
    )
    key = generation.group, generation.number
    yield "INSERT INTO group_pointers (group_name, generation) VALUES (%s, %s) ON CONFLICT DO NOTHING", key
    yield (
        "UPDATE group_generations g SET read_at = now() FROM group_pointers p WHERE p.group_name = g.group_name"
        " AND p.generation = g.generation AND g.group_name = %s AND g.generation = %s",
        key,
    )
