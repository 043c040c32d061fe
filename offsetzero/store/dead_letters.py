"""The ledger of dead letters: written from the dead-letter topics, read together with what operators decided.

A status is never stored. It follows from the decision of an operator and from `processed_events`:
open, redriven (sent again), resolved (sent again, and applied), discarded.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields
from datetime import datetime
from enum import StrEnum
from typing import Any, NamedTuple
from uuid import UUID

from offsetzero.store.forced import OF_LETTER
from offsetzero.store.script import Script


class Status(StrEnum):
    """What became of a dead letter."""

    OPEN = "open"
    REDRIVEN = "redriven"
    RESOLVED = "resolved"
    DISCARDED = "discarded"


class Place(NamedTuple):
    """Where a dead letter is: by the topic's id, for a topic of the same name may come after it."""

    topic_id: str
    partition: int
    place: int


@dataclass(frozen=True, slots=True)
class Entry:
    """One record of a dead-letter topic, as the ledger knows it; the columns of the table, in order."""

    topic_id: str
    partition: int
    place: int
    group_name: str
    failed_at: datetime
    source: str
    event_id: str
    redrive_no: int
    event_type: str | None
    tenant_id: str | None
    run_id: UUID | None
    key: str | None
    failure: str
    reason: str
    detail: str
    fingerprint: str
    attempt: int
    origin_topic_id: str
    origin_topic: str
    origin_partition: int
    origin_offset: int


@dataclass(frozen=True, slots=True)
class Known:
    """An entry with its status, how its event has ended since it was sent again, and who decided about it; `holds`
    says that the events behind it, of its key, wait (table `holds`)."""

    entry: Entry
    status: Status
    outcome: str | None
    action_id: UUID | None
    decided_by: str | None
    decided_at: datetime | None
    holds: bool = False

    @property
    def at(self) -> Place:
        """Its place."""
        return Place(self.entry.topic_id, self.entry.partition, self.entry.place)


@dataclass(frozen=True, slots=True)
class Cause:
    """Dead letters of a group that failed in one way; `detail` is that of the last."""

    group: str
    failure: str
    reason: str
    fingerprint: str
    count: int
    first_seen: datetime
    last_seen: datetime
    detail: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Filter:
    """Which dead letters are meant; what is None or empty says nothing.

    Attributes:
        groups: their groups.
        status: of which status.
        event_type, tenant: as their events say.
        fingerprint: the beginning of one.
        since, until: when they failed; the second is excluded.
        places: these and no others.
        kept: by topic id and partition, the first offset that the log still has: those that can be sent again. What
            is not there is not meant, nor what somebody else wrote there, which names no origin.
        free: only those that no action has taken.
    """

    groups: Sequence[str] = ()
    status: Status | None = None
    event_type: str | None = None
    tenant: str | None = None
    fingerprint: str | None = None
    since: datetime | None = None
    until: datetime | None = None
    places: Sequence[Place] | None = None
    kept: Mapping[tuple[str, int], int] | None = None
    free: bool = False

    def where(self) -> tuple[str, list[Any]]:
        """The condition in SQL, on `l` (dead_letters), `d` (the decision) and `status`, with its parameters."""
        conditions: list[str] = ["true"]
        parameters: list[Any] = []

        def add(condition: str, *values: Any) -> None:
            conditions.append(condition)
            parameters.extend(values)

        if self.groups:
            add("l.group_name = ANY (%s)", list(self.groups))
        if self.event_type is not None:
            add("l.event_type = %s", self.event_type)
        if self.tenant is not None:
            add("l.tenant_id = %s", self.tenant)
        if self.fingerprint is not None:
            add("starts_with(l.fingerprint, %s)", self.fingerprint)
        if self.since is not None:
            add("l.failed_at >= %s", self.since)
        if self.until is not None:
            add("l.failed_at < %s", self.until)
        if self.places is not None:
            add(
                "(l.topic_id, l.partition, l.place) IN (SELECT * FROM unnest(%s::text[], %s::int[], %s::bigint[]))",
                *([place[part] for place in self.places] for part in range(3)),
            )
        if self.kept is not None:
            add(
                "l.origin_topic_id <> '' AND EXISTS (SELECT FROM "
                "unnest(%s::text[], %s::int[], %s::bigint[]) AS k (topic_id, partition, low) "
                "WHERE k.topic_id = l.topic_id AND k.partition = l.partition AND k.low <= l.place)",
                [topic_id for topic_id, _ in self.kept],
                [partition for _, partition in self.kept],
                list(self.kept.values()),
            )
        if self.free:
            # On a column of the join: only that is an anti-join to PostgreSQL, with the right number of rows.
            add("d.topic_id IS NULL")
        if self.status is not None and not (self.free and self.status is Status.OPEN):
            add(_IS[self.status])
        return " AND ".join(conditions), parameters


_GROUP = "regexp_replace(l.group_name, '\\.g[1-9]\\d{0,8}$', '')"
_NUMBER = "coalesce(substring(l.group_name FROM '\\.g([1-9]\\d{0,8})$'), '1')::int"


def of_its_generation(table: str) -> str:
    """That a row is of the generation whose dead letter `l` is; later ones have `<group>.g<N>` for a name there."""
    return f"{table}.group_name = {_GROUP} AND {table}.generation = {_NUMBER}"


def of_its_event(table: str) -> str:
    """That an outcome is of the generation in which the event of the dead letter `l` has its own.

    It is another one than that of the letter's topic where the group was forced to handle the record again.
    """
    return f"{table}.group_name = {_GROUP} AND {table}.generation = greatest({_NUMBER}, {OF_LETTER})"


COLUMNS = ", ".join(f"l.{one.name}" for one in fields(Entry))
FROM = (
    " FROM dead_letters l LEFT JOIN dead_letter_decisions d USING (topic_id, partition, place)"
    " LEFT JOIN dead_letter_actions a ON a.id = d.action_id"
)
_APPLIED = (
    f"EXISTS (SELECT FROM processed_events p WHERE {of_its_event('p')}"
    " AND p.source = l.source AND p.event_id = l.event_id AND p.redrive_no >= l.redrive_no"
    " AND p.outcome IN ('applied', 'stale'))"
)
_STATUS = (
    "CASE WHEN d.done_at IS NULL THEN 'open' WHEN a.kind = 'discard' THEN 'discarded'"
    f" WHEN {_APPLIED} THEN 'resolved' ELSE 'redriven' END"
)
_OPEN = (
    "NOT EXISTS (SELECT FROM dead_letter_decisions x WHERE x.topic_id = l.topic_id "
    "AND x.partition = l.partition AND x.place = l.place AND x.done_at IS NOT NULL)"
)
_IS = {
    Status.OPEN: _OPEN,
    Status.DISCARDED: "d.done_at IS NOT NULL AND a.kind = 'discard'",
    Status.RESOLVED: f"d.done_at IS NOT NULL AND a.kind <> 'discard' AND {_APPLIED}",
    Status.REDRIVEN: f"d.done_at IS NOT NULL AND a.kind <> 'discard' AND NOT {_APPLIED}",
}
"""The cases of `_STATUS` as joins: of a million the newest open ones are found without a look at the others."""
_OUTCOME = (
    "CASE WHEN d.done_at IS NOT NULL THEN (SELECT p.outcome FROM processed_events p"  # noqa: S608
    f" WHERE {of_its_event('p')} AND p.source = l.source AND p.event_id = l.event_id"
    " AND p.redrive_no > l.redrive_no"
    " ORDER BY p.redrive_no DESC LIMIT 1) END"
)
HELD_BY = (
    f"{of_its_generation('h')} AND h.topic_id = l.origin_topic_id AND h.partition = l.origin_partition"
    " AND h.origin = l.origin_offset AND h.redrive_no = l.redrive_no"
)
"""That `h` (holds) is the hold of the dead letter `l`."""
_HOLDS = f"EXISTS (SELECT FROM holds h WHERE {HELD_BY})"
KNOWN = f"{COLUMNS}, {_STATUS}, {_OUTCOME}, a.id, a.who, d.done_at, {_HOLDS}"
"""What `known` takes."""


def count(which: Filter) -> Script[int]:
    """How many are meant."""
    where, parameters = which.where()
    rows = yield f"SELECT count(*){FROM} WHERE {where}", tuple(parameters)
    return int(rows[0][0])


def find(which: Filter, limit: int | None = None) -> Script[list[Known]]:
    """Those that are meant, oldest first; of many the newest `limit`."""
    where, parameters = which.where()
    rows = yield (
        f"SELECT {KNOWN}{FROM} WHERE {where} "
        "ORDER BY l.failed_at DESC, l.group_name DESC, l.partition DESC, l.place DESC LIMIT %s",
        (*parameters, limit),
    )
    return [known(row) for row in reversed(rows)]


def named(group: str, which: str) -> Script[list[Known]]:
    """The dead letters of a group at a place, `PARTITION/OFFSET`, or of an event id; the newest last."""
    partition, slash, place = which.partition("/")
    if slash and partition.isdecimal() and place.isdecimal():
        condition, values = "l.partition = %s AND l.place = %s", (int(partition), int(place))
    else:
        condition, values = "l.event_id = %s", (which,)  # type: ignore[assignment]
    rows = yield (
        f"SELECT {KNOWN}{FROM} WHERE l.group_name = %s AND {condition} ORDER BY l.failed_at, l.redrive_no",
        (group, *values),
    )
    return [known(row) for row in rows]


def causes(which: Filter) -> Script[list[Cause]]:
    """The dead letters that are meant, counted by what went wrong; the most frequent first within a group."""
    where, parameters = which.where()
    rows = yield (
        "SELECT l.group_name, l.failure, l.reason, l.fingerprint, count(*), min(l.failed_at), max(l.failed_at), "
        f"(max(ARRAY[l.failed_at::text, l.detail]))[2]{FROM} WHERE {where} "
        "GROUP BY 1, 2, 3, 4 ORDER BY 1, 5 DESC, 2, 3, 4",
        tuple(parameters),
    )
    return [Cause(*row) for row in rows]


def known(row: tuple[Any, ...]) -> Known:
    """A row of `KNOWN`."""
    entry = Entry(*row[: len(fields(Entry))])
    status, *rest = row[len(fields(Entry)) :]
    return Known(entry, Status(status), *rest)


def open_by_failure() -> Script[dict[str, dict[str, tuple[int, float]]]]:
    """By group and failure class: how many dead letters are open, and the age of the oldest in seconds."""
    rows = yield (
        "SELECT l.group_name, l.failure, count(*), extract(epoch FROM now() - min(l.failed_at))::float8 "  # noqa: S608
        f"FROM dead_letters l WHERE {_OPEN} GROUP BY 1, 2",
        (),
    )
    found: dict[str, dict[str, tuple[int, float]]] = {}
    for group, failure, number, age in rows:
        found.setdefault(group, {})[failure] = (number, age)
    return found
