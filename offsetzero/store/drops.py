"""The end of a generation: that it exists no more, and then all that it had."""

from offsetzero.generation import Generation
from offsetzero.store import generations
from offsetzero.store.script import Script


def drop(generation: Generation, seconds: float) -> Script[bool]:
    """Have a generation that is not read exist no more; in a transaction, which waits for those who read it.

    `clear` and `forget` take out what it had, in others: tables are locked for that, and much may have to be deleted.

    Args:
        generation: that is dropped.
        seconds: how long to wait for who reads it, and for the transactions of the group, behind which others wait.

    Returns:
        False when it is read, and nothing was changed.

    Raises:
        psycopg.errors.LockNotAvailable: they last longer.
    """
    key = generation.group, generation.number
    yield generations.lock_limit(seconds)
    yield "SELECT pg_advisory_xact_lock(%s, hashtext(%s))", (generations.READERS, generation.schema)
    yield from generations.hold_pointer(generation.group)
    if (yield from generations.active(generation.group)) == generation.number:
        return False
    yield "UPDATE group_generations SET dropped_at = now() WHERE group_name = %s AND generation = %s", key
    return True


def clear(generation: Generation) -> Script[None]:
    """Take out the tables of a generation that was dropped; in a transaction. May be repeated."""
    quoted = yield "SELECT quote_ident(%s)", (generation.schema,)
    yield f"DROP SCHEMA IF EXISTS {quoted[0][0]} CASCADE", ()
    yield "DELETE FROM group_starts WHERE group_name = %s", (generation.name,)


def dropped(group: str) -> Script[list[int]]:
    """Those that do not exist any more."""
    rows = yield (
        "SELECT generation FROM group_generations WHERE group_name = %s AND dropped_at IS NOT NULL ORDER BY 1",
        (group,),
    )
    return [int(row[0]) for row in rows]


_ROWS = {
    "withheld_effects": "",
    "holds": "",
    "crash_marks": "",
    "group_positions": "",
    "processed_events": " AND silent",
}
"""What a generation has in tables of all. Outcomes that are not silent remain: they tell which effects there were."""


def forget(generation: Generation, most: int) -> Script[int]:
    """Take out rows of a generation that was dropped, so many of one table at most; may be interrupted and repeated.

    Nobody waits for it: nobody else looks at these rows any more, and each call is a short transaction.

    Returns:
        How many; 0 when there are no more.
    """
    for table, besides in _ROWS.items():
        rows = yield (
            f"WITH gone AS (DELETE FROM {table} WHERE ctid = ANY (ARRAY(SELECT ctid FROM {table}"  # noqa: S608 - named above
            f" WHERE group_name = %s AND generation = %s{besides} LIMIT %s)) RETURNING 1) SELECT count(*) FROM gone",
            (generation.group, generation.number, most),
        )
        if count := int(rows[0][0]):
            return count
    return 0
