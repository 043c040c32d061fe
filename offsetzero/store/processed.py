"""Terminal outcomes of events: what makes the effect of an event happen once for a group."""

import hashlib
from collections import Counter
from collections.abc import Sequence
from enum import StrEnum
from operator import itemgetter
from typing import Any, NamedTuple

from offsetzero.generation import Generation
from offsetzero.store import arrays
from offsetzero.store.script import Script, in_parts


class Outcome(StrEnum):
    """How an event ended for a group."""

    APPLIED = "applied"
    STALE = "stale"
    FAILED = "failed"
    CANCELLED = "cancelled"
    DISCARDED = "discarded"
    DEAD_LETTERED = "dead-lettered"


RAW_SOURCE = "offsetzero:raw"
"""The source of what has no event id: its place in the log is the id."""
MAX_ID = 500


def short(name: str) -> str:
    """A source or event id as it is stored; a longer one than an index takes is known by its hash."""
    return name if len(name) <= MAX_ID else f"sha256:{hashlib.sha256(name.encode(errors='replace')).hexdigest()}"


class EventIdentity(NamedTuple):
    """Whose outcome: an event id is unique only with its source; only a higher `redrive_no` opens it again."""

    group: str
    source: str
    event_id: str
    redrive_no: int = 0
    generation: int = 1

    def key(self) -> tuple[str, int, str, str, int]:
        """As the tables have it."""
        return self.group, self.generation, self.source, self.event_id, self.redrive_no


_SELECT = (
    "SELECT outcome FROM processed_events WHERE group_name = %s AND generation = %s AND source = %s"
    " AND event_id = %s AND redrive_no >= %s ORDER BY redrive_no DESC LIMIT 1"
)
_INSERT = (
    "INSERT INTO processed_events (group_name, generation, source, event_id, redrive_no, outcome, silent)"
    " VALUES (%s, %s, %s, %s, %s, %s, %s) ON CONFLICT DO NOTHING RETURNING 1"
)


def find(identity: EventIdentity) -> Script[Outcome | None]:
    """The outcome of an event, if it has one: of several the last, under the highest `redrive_no`."""
    rows = yield _SELECT, identity.key()
    return Outcome(rows[0][0]) if rows else None


def claim(identity: EventIdentity, outcome: Outcome, *, silent: bool = False) -> Script[bool]:
    """Write the outcome of an event; False when it had one.

    A concurrent claim of the same event waits for the other transaction's end, then sees it.

    Args:
        identity: of the event.
        outcome: how it has ended.
        silent: whether in a generation that is not read, so that it has no effects besides the generation's tables.
    """
    rows = yield _INSERT, (*identity.key(), outcome.value, silent)
    return bool(rows)


# Sends back what is not new, as often as it is not: almost always that is nothing.
_INSERT_ALL = (
    "WITH given AS MATERIALIZED (SELECT * FROM unnest(%s::text[], %s::text[], %s::int[])"
    " AS g (source, event_id, redrive_no)),"
    " claimed AS (INSERT INTO processed_events (group_name, generation, source, event_id, redrive_no, outcome,"
    " silent) SELECT %s, %s, source, event_id, redrive_no, %s, %s FROM given ORDER BY source, event_id, redrive_no"
    " ON CONFLICT DO NOTHING RETURNING source, event_id, redrive_no)"
    " SELECT * FROM given EXCEPT ALL SELECT * FROM claimed"
)
# The same of events of one source under one number, which most batches are.
_INSERT_ALIKE = (
    "WITH given AS MATERIALIZED (SELECT * FROM unnest(%s::text[]) AS g (event_id)),"
    " claimed AS (INSERT INTO processed_events (group_name, generation, source, redrive_no, event_id, outcome,"
    " silent) SELECT %s, %s, %s, %s, event_id, %s, %s FROM given ORDER BY event_id"
    " ON CONFLICT DO NOTHING RETURNING event_id)"
    " SELECT * FROM given EXCEPT ALL SELECT * FROM claimed"
)
_alike = itemgetter(1, 3)  # what events of one statement have in common then: source and number


def claim_all(identities: Sequence[EventIdentity], outcome: Outcome, *, silent: bool = False) -> Script[list[bool]]:
    """Write the outcome of many events of one group, in one statement for each generation; see `claim`.

    Sorted, so that two batches which share events wait for each other rather than deadlock.

    Returns:
        For each event, in the given order, whether it had no outcome; of equal ones only the first.
    """
    if len(numbers := {one.generation for one in identities}) > 1:
        new = dict.fromkeys(range(len(identities)), False)
        for number in sorted(numbers):  # in one order, like the events of each
            places = [at for at, one in enumerate(identities) if one.generation == number]
            some = yield from claim_all([identities[at] for at in places], outcome, silent=silent)
            new.update(zip(places, some, strict=True))
        return list(new.values())
    first = identities[0]
    ids = arrays.texts([one.event_id for one in identities])
    alike = len(set(map(_alike, identities))) == 1
    if alike:
        key: tuple[Any, ...] = first.group, first.generation, first.source, first.redrive_no
        statement, parameters = _INSERT_ALIKE, (ids, *key, outcome.value, silent)
    else:
        sources = arrays.texts([one.source for one in identities])
        redrives = arrays.numbers([one.redrive_no for one in identities])
        key = first.group, first.generation
        statement, parameters = _INSERT_ALL, (sources, ids, redrives, *key, outcome.value, silent)
    claimed = [True] * len(identities)
    known = Counter((yield statement, parameters))
    for at in range(len(identities) - 1, -1, -1) if known else ():
        row = identities[at][2:3] if alike else identities[at][1:4]
        if known[row]:
            known[row] -= 1
            claimed[at] = False
    return claimed


_ENDED = (
    "SELECT DISTINCT e.source, e.event_id, e.redrive_no FROM unnest(%s::text[], %s::text[], %s::int[]) "
    "AS e (source, event_id, redrive_no) JOIN processed_events p ON p.group_name = %s AND p.generation = %s "
    "AND p.source = e.source AND p.event_id = e.event_id AND (p.redrive_no >= e.redrive_no "
    "OR p.redrive_no = e.redrive_no - 1 AND p.outcome <> 'dead-lettered')"
)


def ended(group: str, events: Sequence[tuple[str, str, int]]) -> Script[set[tuple[str, str, int]]]:
    """Those of the events (source, id, `redrive_no`) that have an outcome under this number or a higher one.

    Or under the one before, and another than a dead letter: a process died between the append of the letter and its
    outcome, and what came after it handled the event once more.
    """
    key = Generation.named(group)
    rows = yield from in_parts(
        events, lambda some: (_ENDED, (*([event[part] for event in some] for part in range(3)), key.group, key.number))
    )
    return {(row[0], row[1], row[2]) for row in rows}
