"""Reads the ledger of dead letters a page at a time, or their places alone, however much there is of it."""

from collections.abc import Iterator
from typing import Any

from offsetzero.store.database import Connection
from offsetzero.store.dead_letters import FROM, KNOWN, Filter, Known, known, narrowed
from offsetzero.store.script import Script, run

_ORDER = "l.failed_at, l.group_name, l.partition, l.place, l.topic_id"


def pages(connection: Connection, which: Filter, size: int) -> Iterator[list[Known]]:
    """All that are meant, oldest first. Each page is read when it is asked for, and as things are then.

    Args:
        connection: in autocommit mode.
        which: those that are meant.
        size: of a page; the last one may be smaller.
    """
    which = run(connection, narrowed(which))
    after: tuple[Any, ...] | None = None
    while page := run(connection, _page(which, after, size)):
        yield page
        last = page[-1].entry
        after = (last.failed_at, last.group_name, last.partition, last.place, last.topic_id)


def places(connection: Connection, which: Filter, size: int) -> Iterator[list[tuple[int, int, bool]]]:
    """Where those that are meant are: partition, offset, and whether operators have edited it; in pages, as `pages`.

    Args:
        connection: in autocommit mode.
        which: dead letters of one topic (see `redrive_plan.sendable`).
        size: of a page.
    """
    after = -1, -1
    while page := run(connection, _places(which, after, size)):
        yield page
        after = page[-1][:2]


def _places(which: Filter, after: tuple[int, int], size: int) -> Script[list[tuple[int, int, bool]]]:
    where, parameters = which.where()
    rows = yield (
        "SELECT l.partition, l.place, EXISTS (SELECT FROM dead_letter_edits e WHERE e.topic_id = l.topic_id"  # noqa: S608
        f" AND e.partition = l.partition AND e.place = l.place){FROM} WHERE {where}"
        " AND (l.partition, l.place) > (%s, %s) ORDER BY l.partition, l.place LIMIT %s",
        (*parameters, *after, size),
    )
    return [(partition, place, edited) for partition, place, edited in rows]


def _page(which: Filter, after: tuple[Any, ...] | None, size: int) -> Script[list[Known]]:
    where, parameters = which.where()
    if after is not None:
        where, parameters = f"{where} AND ({_ORDER}) > (%s, %s, %s, %s, %s)", [*parameters, *after]
    rows = yield f"SELECT {KNOWN}{FROM} WHERE {where} ORDER BY {_ORDER} LIMIT %s", (*parameters, size)
    return [known(row) for row in rows]
