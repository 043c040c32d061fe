"""Generations of projections, and which of them is read: the pointer (tables `group_generations`, `group_pointers`).

A transaction of a generation begins with `enter`: it learns whether the pointer is at it, and the pointer stays there
until the transaction ends, for whoever moves it waits for that.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from offsetzero.errors import ConfigurationError
from offsetzero.generation import Generation
from offsetzero.store.script import Script, Statement

LOCK = 0x6F7A_0003
"""First half of the advisory lock of a pointer; the other is the hash of the group's name."""
READERS = 0x6F7A_0005
"""First half of the advisory lock of those who read a generation; the other is the hash of its schema."""


@dataclass(frozen=True, slots=True)
class Standing:
    """How a generation stands to the pointer of its group, until the transaction ends.

    Attributes:
        is_read: whether the pointer is at it: then what it does has effects besides its tables.
        others: the numbers of all others that there have ever been.
        is_frozen: it is read, and is to change nothing for a moment.
        owes: it is read, and something that it has withheld before is still to be done.
        is_named: it was made to be looked at, and will never be read: it has no effects, not later either.
    """

    is_read: bool
    others: Sequence[int] = ()
    is_frozen: bool = False
    owes: bool = False
    is_named: bool = False


ALONE = Standing(is_read=True)
"""Of a group that is no projection."""

_ENTER = "SELECT pg_advisory_xact_lock_shared(%s, hashtext(%s))"
_STANDING = (
    "SELECT p.generation = g.generation,"
    " ARRAY(SELECT o.generation FROM group_generations o WHERE o.group_name = g.group_name"
    " AND o.generation <> g.generation),"
    " p.generation = g.generation AND coalesce(p.frozen_until > clock_timestamp(), false),"
    " p.generation = g.generation AND EXISTS (SELECT FROM withheld_effects w WHERE w.group_name = g.group_name"
    " AND w.generation = g.generation), g.name IS NOT NULL"
    " FROM group_generations g JOIN group_pointers p USING (group_name)"
    " WHERE g.group_name = %s AND g.generation = %s AND g.dropped_at IS NULL"
)
EVER = "SELECT generation FROM group_generations WHERE group_name = %s"
_READ = (
    "SELECT generation, set_config('search_path',"
    " quote_ident(group_name || '_g' || generation) || ', ' || current_setting('search_path'), true),"
    " pg_advisory_xact_lock_shared(%s, hashtext(group_name || '_g' || generation))"
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

    First in a REPEATABLE READ transaction, so that the pointer and all that is read later are of one moment. While it
    lasts the generation is not dropped.

    Returns:
        The number of the generation that is read.

    Raises:
        ConfigurationError: the group has no projection in this database.
    """
    rows = yield _READ, (READERS, group)
    if not rows:
        raise ConfigurationError(f"group {group}: it has no projection yet; `offsetzero groups run {group}` makes it")
    return int(rows[0][0])


def keep(generation: Generation) -> Script[None]:
    """Have a generation not dropped until the connection ends; for one that is in autocommit.

    Not in the transaction that reads it: a wait for a drop would be part of that, and its snapshot older than the drop.
    """
    yield "SELECT pg_advisory_lock_shared(%s, hashtext(%s))", (READERS, generation.schema)


def groups() -> Script[list[str]]:
    """The groups that have generations."""
    rows = yield "SELECT group_name FROM group_pointers ORDER BY 1", ()
    return [row[0] for row in rows]


def active(group: str) -> Script[int | None]:
    """The generation that is read; None when there is none yet."""
    rows = yield "SELECT generation FROM group_pointers WHERE group_name = %s", (group,)
    return int(rows[0][0]) if rows else None


def meant(name: str) -> Script[Generation]:
    """The generation that people mean by a name: of GROUP the one that is read, the first if none is; GROUP.gN is that.

    The one place where names are understood.
    """
    named = Generation.named(name)
    if named.group != name:
        return named
    return Generation(name, (yield from active(name)) or named.number)


def numbers(group: str) -> Script[list[int]]:
    """Those that exist, in their order."""
    rows = yield (
        "SELECT generation FROM group_generations WHERE group_name = %s AND dropped_at IS NULL ORDER BY 1",
        (group,),
    )
    return [int(row[0]) for row in rows]


def names(group: str) -> Script[list[str]]:
    """What Kafka knows all generations by that there have ever been, and with that their dead letters."""
    rows = yield EVER, (group,)
    return [Generation(group, number).name for number in sorted({1, *(int(row[0]) for row in rows)})]


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


def note(group: str, number: int) -> Script[None]:
    """Record a generation without tables, of a group that is no projection; see `offsetzero.store.forced`."""
    yield "INSERT INTO group_generations (group_name, generation, read_at) VALUES (%s, %s, now())", (group, number)


@dataclass(frozen=True, slots=True)
class Known:
    """A generation that exists.

    Attributes:
        number: its own.
        created_at: when it was begun.
        read_at: when it was first read: None for one that is still being made, and for one with a name.
        is_read: whether it is the one that is read.
        name: of one that was made to be looked at.
        until: the time up to which that has the log.
        filled_at: when it was whole; None while it is not.
        made_with: what its tables were made for, where settings decide that.
    """

    number: int
    created_at: datetime
    read_at: datetime | None
    is_read: bool
    name: str | None = None
    until: datetime | None = None
    filled_at: datetime | None = None
    made_with: Mapping[str, Any] | None = None


def known(group: str) -> Script[list[Known]]:
    """Those that exist, in their order."""
    rows = yield (
        "SELECT g.generation, g.created_at, g.read_at, g.generation = p.generation, g.name, g.until, g.filled_at,"
        " g.made_with FROM group_generations g"
        " JOIN group_pointers p USING (group_name) WHERE g.group_name = %s AND g.dropped_at IS NULL ORDER BY 1",
        (group,),
    )
    return [Known(*row) for row in rows]


def behind(*, besides: str) -> Script[list[tuple[str, Known]]]:
    """The generations of all groups but one that are not read: nobody may follow the log for them at present."""
    found = []
    for group in (yield from groups()):
        if group != besides:
            found += [(group, one) for one in (yield from known(group)) if not one.is_read]
    return found


def call(generation: Generation, name: str, until: datetime) -> Script[None]:
    """Have a generation be one to look at, in the transaction that makes it."""
    yield (
        "UPDATE group_generations SET name = %s, until = %s WHERE group_name = %s AND generation = %s",
        (name, until, generation.group, generation.number),
    )


def filled(generation: Generation) -> Script[None]:
    """Write down that one with a name is whole."""
    yield (
        "UPDATE group_generations SET filled_at = now() WHERE group_name = %s AND generation = %s",
        (generation.group, generation.number),
    )


def next_number(group: str) -> Script[int]:
    """The number for one more: none is used twice, for outcomes of those that were dropped stay."""
    rows = yield (
        "SELECT coalesce(max(generation), 0) + 1 FROM group_generations WHERE group_name = %s",
        (group,),
    )
    return int(rows[0][0])


def hold_pointer(group: str, seconds: float = 0.0) -> Script[None]:
    """Wait for the transactions of all generations, and keep others from beginning until this one ends.

    Args:
        group: its name.
        seconds: how long to wait for any lock in this transaction, at least a millisecond; 0 for ever. Who begins a
            transaction meanwhile waits behind it: PostgreSQL lets nobody pass.

    Raises:
        psycopg.errors.LockNotAvailable: they last longer.
    """
    if seconds:
        yield lock_limit(seconds)
    yield "SELECT pg_advisory_xact_lock(%s, hashtext(%s))", (LOCK, group)


def lock_limit(seconds: float) -> Statement:
    """Have the transaction wait no longer than that for any lock; see `hold_pointer`."""
    return "SELECT set_config('lock_timeout', %s, true)", (f"{max(1, int(seconds * 1000))}ms",)


def freeze(group: str, seconds: float) -> Script[None]:
    """Have the generation that is read change nothing for so long; in a transaction that holds the pointer.

    It ends by itself, so that a process that dies in it leaves nothing behind.
    """
    yield (
        "UPDATE group_pointers SET frozen_until = clock_timestamp() + make_interval(secs => %s) WHERE group_name = %s",
        (seconds, group),
    )


def thaw(group: str) -> Script[None]:
    """Let it go on."""
    yield "UPDATE group_pointers SET frozen_until = NULL WHERE group_name = %s", (group,)


def move(group: str, old: int, new: int) -> Script[bool]:
    """Have another generation read; in a transaction that holds the pointer.

    Returns:
        False when nothing was changed: the pointer is not at `old`, or it is not frozen any more, so that `old` may
        have gone on.
    """
    rows = yield (
        "UPDATE group_pointers SET generation = %s, fence = fence + 1, moved_at = clock_timestamp(),"
        " frozen_until = NULL WHERE group_name = %s AND generation = %s AND frozen_until > clock_timestamp()"
        " RETURNING 1",
        (new, group, old),
    )
    if rows:
        yield (
            "UPDATE group_generations SET read_at = clock_timestamp() WHERE group_name = %s AND generation = %s"
            " AND read_at IS NULL",
            (group, new),
        )
    return bool(rows)
