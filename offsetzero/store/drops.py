"""The end of a generation: that it exists no more, and then all that it had."""

from offsetzero.generation import Generation
from offsetzero.store import generations
from offsetzero.store.script import Script


def drop(generation: Generation, seconds: float) -> Script[bool]:
    """Have a generation that is not read exist no more; in a transaction, which waits for those who read it.

    `clear` takes out what it had, in another one: for that tables are locked, and meanwhile nobody else is to wait.

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
    """Take out the tables and rows of a generation that was dropped; in a transaction. May be repeated.

    What remains are its outcomes: those that are not silent tell which effects there have been; the others may be
    taken out with `forget`.
    """
    key = generation.group, generation.number
    quoted = yield "SELECT quote_ident(%s)", (generation.schema,)
    yield f"DROP SCHEMA IF EXISTS {quoted[0][0]} CASCADE", ()
    for table in ("group_positions", "withheld_effects", "holds", "crash_marks"):
        yield f"DELETE FROM {table} WHERE group_name = %s AND generation = %s", key  # noqa: S608 - named above
    yield "DELETE FROM group_starts WHERE group_name = %s", (generation.name,)


def dropped(group: str) -> Script[list[int]]:
    """Those that do not exist any more."""
    rows = yield (
        "SELECT generation FROM group_generations WHERE group_name = %s AND dropped_at IS NOT NULL ORDER BY 1",
        (group,),
    )
    return [int(row[0]) for row in rows]


def forget(generation: Generation, most: int) -> Script[bool]:
    """Take out the first silent outcomes of a generation that was dropped, so many; whether there may be more."""
    rows = yield (
        "WITH gone AS (DELETE FROM processed_events WHERE ctid = ANY (ARRAY(SELECT ctid FROM processed_events"
        " WHERE group_name = %s AND generation = %s AND silent LIMIT %s)) RETURNING 1) SELECT count(*) FROM gone",
        (generation.group, generation.number, most),
    )
    return int(rows[0][0]) == most
