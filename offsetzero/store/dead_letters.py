"""The ledger of dead letters: written from the dead-letter topics, read together with what operators decided."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields, replace
from datetime import datetime
from typing import Any, NamedTuple
from uuid import UUID

from offsetzero.store import dead_letter_status as sql
from offsetzero.store.dead_letter_status import Status
from offsetzero.store.script import Script


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
        actions: only those that one of these has taken.
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
    actions: Sequence[UUID] | None = None

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
        if self.actions is not None:
            add("d.action_id = ANY (%s)", list(self.actions))
        if self.status is not None and not (self.free and self.status is Status.OPEN):
            add(sql.IS[self.status])
        return " AND ".join(conditions), parameters


COLUMNS = ", ".join(f"l.{one.name}" for one in fields(Entry))
FROM = (
    " FROM dead_letters l LEFT JOIN dead_letter_decisions d USING (topic_id, partition, place)"
    " LEFT JOIN dead_letter_actions a ON a.id = d.action_id"
)
KNOWN = f"{COLUMNS}, {sql.STATUS}, {sql.OUTCOME}, a.id, a.who, d.done_at, {sql.HOLDS}"
"""What `known` takes."""


def count(which: Filter) -> Script[int]:
    """How many are meant."""
    where, parameters = which.where()
    rows = yield f"SELECT count(*){FROM} WHERE {where}", tuple(parameters)
    return int(rows[0][0])


def narrowed(which: Filter) -> Script[Filter]:
    """The same dead letters, by the actions that can have decided so.

    For questions with a limit: PostgreSQL knows how often an action was the one, so that it looks for few among many by
    these, and does not go through all, the newest first. Of the kinds of actions it knows nothing.
    """
    if which.status in (None, Status.OPEN):
        return which
    rows = yield (
        "SELECT id FROM dead_letter_actions WHERE kind = %s AND (%s::text[] IS NULL OR group_name = ANY (%s))",
        ("discard" if which.status is Status.DISCARDED else "redrive", *[list(which.groups) or None] * 2),
    )
    return replace(which, actions=[action for (action,) in rows])


def find(which: Filter, limit: int | None = None) -> Script[list[Known]]:
    """Those that are meant, oldest first; of many the newest `limit`."""
    where, parameters = (yield from narrowed(which)).where()
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
        f"FROM dead_letters l WHERE {sql.OPEN} GROUP BY 1, 2",
        (),
    )
    found: dict[str, dict[str, tuple[int, float]]] = {}
    for group, failure, number, age in rows:
        found.setdefault(group, {})[failure] = (number, age)
    return found
