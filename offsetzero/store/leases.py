"""Leases of steps (design section 8): who works on a step, by which number, and until when.

A lease is taken in the statement that shows a step as running and given up in the one that shows its end, so it costs
no statement. Its number, the fence, rises each time that the step is leased or taken away: who comes with an older one
changes nothing, and what else its transaction has done is rolled back.

Whether an owner lives is not kept here: Kafka's coordinator knows its members, and gives their partitions to others
when they are silent. See docs/decisions/a-lease-ends-with-its-member.md.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple
from uuid import UUID

from offsetzero.store.run_states import RESCUED
from offsetzero.store.script import Script

UNLEASED = 0
"""The fence of a step that cannot be leased, because it has ended, or its run is not known: it is not compared."""
OVERDUE = "max-duration"
"""The reason of a step that was taken away because it has taken longer than it may."""
MOST = 20_000
"""Leases that are looked at in one go, the oldest deadlines first."""


class Fenced(Exception):
    """The step has been leased to another, or taken away: what was to be written of it is without effect.

    `overdue` tells that it was taken away because it took too long.
    """

    def __init__(self, *, overdue: bool) -> None:
        super().__init__("the step was leased to another, or taken away, since its work began")
        self.overdue = overdue


class NotOurs(Exception):
    """Another member reads the partition by now: the step is not to be leased."""

    def __init__(self) -> None:
        super().__init__("another member has begun to read the partition; this one is told so, or enters it again")


class Owner(NamedTuple):
    """Who has a lease: a consumer group and a member of it, as Kafka knows them; and the name of its sessions."""

    group: str
    member: str
    sessions: str

    def __str__(self) -> str:
        return f"{self.group}/{self.sessions}/{self.member}"

    @classmethod
    def read(cls, text: str) -> "Owner":
        """From what `str` made: only the last part, which Kafka gave, may have any characters."""
        group, sessions, member = text.split("/", 2)
        return cls(group, member, sessions)


class Stay(NamedTuple):
    """The stay of a partition with a member, as `group_starts` names it; an empty name is one that is not kept."""

    group: str
    topic: str
    partition: int
    name: str


@dataclass(frozen=True, slots=True)
class Request:
    """What a lease is asked for with.

    Attributes:
        owner: None for one whose life nobody can tell: only the deadline ends its lease.
        seconds: from now, by the clock of the database, after which it must have ended.
        stay: of the partition that the record was read from.
    """

    owner: Owner | None
    seconds: float
    stay: Stay


ALONE = Request(None, 3600.0, Stay("", "", 0, ""))
"""Of one who is no member of a group."""


@dataclass(frozen=True, slots=True)
class Held:
    """A lease that somebody has. `overdue`: its deadline has passed, by the clock of the database."""

    run_id: UUID
    step: str
    fence: int
    owner: Owner | None
    overdue: bool


@dataclass(frozen=True, slots=True)
class Rescue:
    """A lease that is to be taken away: `reason` is a stable code, `detail` a sentence for people."""

    lease: Held
    reason: str
    detail: str


IS_ANOTHERS = (
    "EXISTS (SELECT FROM group_starts WHERE group_name = %s AND topic = %s AND partition = %s AND %s NOT IN ('', stay))"
)
"""That another member has entered the partition of a stay, whose fields are the parameters."""
_HELD = (
    "SELECT run_id, step, fence, owner, deadline + make_interval(secs => %s) < clock_timestamp() FROM run_steps"
    " WHERE deadline IS NOT NULL ORDER BY deadline LIMIT %s"
)
_TAKE_AWAY = (
    "UPDATE run_steps s SET status = 'queued', fence = s.fence + 1, owner = NULL, deadline = NULL, due = NULL,"
    " reason = gone.reason, detail = gone.detail"
    " FROM unnest(%s::uuid[], %s::text[], %s::bigint[], %s::text[], %s::text[])"
    " AS gone (run_id, step, fence, reason, detail)"
    " WHERE s.run_id = gone.run_id AND s.step = gone.step AND s.fence = gone.fence AND s.status = ANY (%s)"
    " RETURNING s.run_id, s.step"
)
# A member that lost its partition while it was frozen in a transaction keeps its claim of the event, and who has the
# partition by now waits for it. A row of `runs` is locked by a member's last statements alone.
_END_SESSIONS = """
WITH members AS (
    SELECT pid, application_name AS name, wait_event_type = 'Lock' AS waits, query,
        state LIKE 'idle in transaction%%' AND state_change < clock_timestamp() - make_interval(secs => %s) AS is_still
    FROM pg_stat_activity WHERE datname = current_database()
)
SELECT pg_terminate_backend(pid) FROM members still WHERE is_still AND (name = ANY (%s) OR (
    name ~ '-[0-9a-f]{16}$' AND EXISTS (
        SELECT FROM members one WHERE one.waits AND one.name <> still.name
        AND (one.query LIKE 'INSERT INTO processed_events%%' OR one.query LIKE 'SELECT %%FROM runs %%')
        AND still.pid = ANY (pg_blocking_pids(one.pid))
    )
))
"""


def not_ours(stay: Stay) -> Script[bool]:
    """Whether another member has begun to read the partition."""
    rows = yield f"SELECT {IS_ANOTHERS}", tuple(stay)
    return bool(rows[0][0])


def held(grace: float) -> Script[list[Held]]:
    """The leases that members have.

    Args:
        grace: seconds past its deadline in which a member may end the step itself.
    """
    rows = yield _HELD, (grace, MOST)
    return [
        Held(run_id, step, fence, Owner.read(owner) if owner else None, overdue)
        for run_id, step, fence, owner, overdue in rows
    ]


def take_away(rescues: Sequence[Rescue]) -> Script[set[tuple[UUID, str]]]:
    """Have steps wait for their next owner, those whose lease is still the one that was looked at.

    Args:
        rescues: their runs are locked (see `runs.lock_free`).

    Returns:
        Run and step of those.
    """
    leases = [one.lease for one in rescues]
    rows = yield (
        _TAKE_AWAY,
        (
            [lease.run_id for lease in leases],
            [lease.step for lease in leases],
            [lease.fence for lease in leases],
            [one.reason for one in rescues],
            [one.detail for one in rescues],
            [status.value for status in RESCUED.before],
        ),
    )
    return {(run_id, step) for run_id, step in rows}


def end_sessions(names: Sequence[str], seconds: float) -> Script[int]:
    """End sessions that stand still in a transaction, and have others wait for a process that is gone, or frozen.

    Those of members that are gone; and those of any member that has begun an event which another member has leased by
    now: it could not end it.

    Args:
        names: of the sessions of members that are gone.
        seconds: for which they have sent nothing.

    Returns:
        How many there were.

    Raises:
        psycopg.errors.InsufficientPrivilege: they are of another role.
    """
    rows = yield _END_SESSIONS, (seconds, list(names))
    return len(rows)
