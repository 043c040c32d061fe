"""What became of runs, as numbered events: triggers write them in the transactions of the runs (migration 0021)."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any
from uuid import UUID

from offsetzero.store import run_views
from offsetzero.store.run_states import RunStatus
from offsetzero.store.run_views import RunView
from offsetzero.store.script import Rows, Script

MOST = 500
"""Events that are told one by one; who is further behind is told how the run is now."""
KEPT = 64
"""The newest events of a run that `news` gives."""
_AT_ONCE = 5_000
_OVER = frozenset({RunStatus.SUCCEEDED, RunStatus.FAILED, RunStatus.CANCELLED})


@dataclass(frozen=True, slots=True)
class RunEvent:
    """A change of a run, or of one of its steps: `state` is the row as it was then."""

    number: int
    kind: str
    state: dict[str, Any]

    def is_over(self, before: bool) -> bool:
        """Whether the run is over with this event, by whether it was before."""
        return self.state["status"] in _OVER if self.kind == "run" else before


@dataclass(frozen=True, slots=True)
class Since:
    """What has become of a run after an event, as of one moment: the events, or, without them, how the run is.

    `last` is the number of its newest event, `over` whether it has ended.
    """

    last: int
    over: bool
    events: Sequence[RunEvent] = ()
    snapshot: RunView | None = None

    @property
    def is_nothing(self) -> bool:
        """There is nothing to tell."""
        return not self.events and self.snapshot is None


def since(tenant_id: str, run_id: UUID, after: int | None) -> Script[Since | None]:
    """What has become of a tenant's run; to be run in a transaction that sees one moment.

    Args:
        after: the last event that is known, None for none. One that the run never had, whose successors are no longer
            kept, or that is more than `MOST` behind, is answered with a snapshot.

    Returns:
        None when there is no such run, and when it is another's.
    """
    rows = yield "SELECT status, last_event FROM runs WHERE id = %s AND tenant_id = %s", (run_id, tenant_id)
    if not rows:
        return None
    status, last = rows[0]
    behind = last - (after or 0)
    if 0 <= behind <= MOST and (after is not None or behind):
        rows = yield (
            "SELECT number, kind, state FROM run_events WHERE run_id = %s AND number > %s ORDER BY number",
            (run_id, after or 0),
        )
        if len(rows) == behind:
            return Since(last, status in _OVER, [RunEvent(*row) for row in rows])
    snapshot = yield from run_views.find(tenant_id, run_id)
    return Since(last, status in _OVER, snapshot=snapshot)


def news(known: Sequence[tuple[UUID, int]]) -> Script[dict[UUID, list[RunEvent]]]:
    """The newest events of runs, in their order, at most `KEPT` of each.

    Args:
        known: a run, and the last event of it that is known.
    """
    rows: Rows = yield (
        "SELECT e.run_id, e.number, e.kind, e.state FROM unnest(%s::uuid[], %s::int[]) AS k (run_id, number) "
        "CROSS JOIN LATERAL (SELECT * FROM run_events WHERE run_id = k.run_id AND number > k.number "
        "ORDER BY number DESC LIMIT %s) AS e ORDER BY e.run_id, e.number",
        ([run_id for run_id, _ in known], [number for _, number in known], KEPT),
    )
    found: dict[UUID, list[RunEvent]] = {}
    for run_id, *event in rows:
        found.setdefault(run_id, []).append(RunEvent(*event))
    return found


def trim(keep_seconds: float) -> Script[bool]:
    """Delete some of the events that are older than so many seconds. True while there may be more of them."""
    rows = yield (
        "WITH old AS (SELECT run_id, number FROM run_events WHERE at < now() - make_interval(secs => %s) "
        "ORDER BY at LIMIT %s FOR UPDATE SKIP LOCKED), gone AS (DELETE FROM run_events e USING old "
        "WHERE e.run_id = old.run_id AND e.number = old.number RETURNING 1) SELECT count(*) FROM gone",
        (keep_seconds, _AT_ONCE),
    )
    return bool(rows[0][0] == _AT_ONCE)
