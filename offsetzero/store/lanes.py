"""Which lane an event of a document takes: that for live traffic, or that for backfill. Chosen where it is written.

A document whose last event may not be handled yet keeps that event's lane, so that two of its events are never in two
lanes at once (docs/decisions/lanes.md). Callers hold the document, or have just added it.
"""

from enum import StrEnum
from uuid import UUID

from offsetzero.store.run_states import StepStatus
from offsetzero.store.script import Script


class Lane(StrEnum):
    """A lane: of a run, the one that its event takes."""

    NORMAL = "normal"
    BULK = "bulk"


class Why(StrEnum):
    """Why an event takes its lane."""

    ASKED = "asked"
    QUOTA = "quota"
    """Its tenant has as many runs in flight in the lane for live traffic as it may have."""
    KEPT = "kept"
    """The document's last event may not be handled yet, and is in that lane."""


_HANDLED = [StepStatus.SUCCEEDED.value, StepStatus.FAILED.value]
"""Steps whose group has handled the event. A cancelled one says nothing of that: its event may still be on its way."""


def of_last(document_id: UUID) -> Script[Lane]:
    """The lane of a document's last run, and so of its last event; that for live traffic where there is none."""
    lane, _ = yield from _last(document_id)
    return lane


def choose(tenant_id: str, document_id: UUID, asked: Lane, *, most: int) -> Script[tuple[Lane, Why]]:
    """Choose the lane of a document's next run. That of its first is chosen by the same rule in `store.intake`.

    Args:
        tenant_id: whose it is.
        document_id: which; nobody else begins a run of it meanwhile.
        asked: the lane that was asked for.
        most: runs that the tenant may have in flight in the lane for live traffic.

    Returns:
        The lane, and why.
    """
    last, is_handled = yield from _last(document_id)
    if not is_handled:
        return last, Why.KEPT
    if asked is Lane.NORMAL and (yield from _in_flight(tenant_id, most)) >= most:
        return Lane.BULK, Why.QUOTA
    return asked, Why.ASKED


def _last(document_id: UUID) -> Script[tuple[Lane, bool]]:
    rows = yield (
        "SELECT r.lane, NOT EXISTS (SELECT FROM run_steps s WHERE s.run_id = r.id AND s.required "
        "AND s.status <> ALL (%s)) FROM runs r WHERE r.document_id = %s ORDER BY r.created_at DESC, r.id DESC LIMIT 1",
        (_HANDLED, document_id),
    )
    return (Lane(rows[0][0]), bool(rows[0][1])) if rows else (Lane.NORMAL, True)


def _in_flight(tenant_id: str, most: int) -> Script[int]:
    """How many a tenant has there, counted no further than `most`; those of transactions that go on are not seen."""
    rows = yield (
        "SELECT count(*) FROM (SELECT FROM runs WHERE tenant_id = %s AND finished_at IS NULL AND lane = 'normal' "
        "LIMIT %s) AS found",
        (tenant_id, most),
    )
    return int(rows[0][0])
