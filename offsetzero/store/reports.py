"""Reports: what a tenant had and what became of its runs, counted at a fire time (table `reports`)."""

from datetime import datetime, timedelta
from typing import NamedTuple
from uuid import UUID

from offsetzero.clock import SYSTEM
from offsetzero.schemas.ids import first_of
from offsetzero.store.script import Script

KEPT = timedelta(days=730)
"""For how long reports are kept: two of each day of a year can be compared."""
PRUNED_AT_ONCE = 5_000


class Report(NamedTuple):
    """One report of a tenant: its documents when it was made; the runs that were begun after `since` and until
    `until`, by how they stood then, and the tokens that these had used."""

    id: UUID
    since: datetime
    until: datetime
    made_at: datetime
    documents: int
    size_bytes: int
    queued: int
    running: int
    succeeded: int
    failed: int
    cancelled: int
    input_tokens: int
    output_tokens: int


_COLUMNS = ", ".join(Report._fields)
_COUNTED = Report._fields[4:]
_SLACK = timedelta(days=1)  # runs are found by the times in their ids, which are of the clocks of those who began them
_MAKE = f"""
WITH had AS (
    SELECT tenant_id, count(*) AS documents, sum(size_bytes)::bigint AS size_bytes FROM documents
    WHERE deleted_at IS NULL AND (%s::text IS NULL OR tenant_id = %s) GROUP BY tenant_id
), begun AS (
    SELECT id, tenant_id, status FROM runs
    WHERE id >= %s AND created_at > %s AND created_at <= %s AND (%s::text IS NULL OR tenant_id = %s)
), ran AS (
    SELECT tenant_id, count(*) FILTER (WHERE status = 'queued') AS queued,
    count(*) FILTER (WHERE status = 'running') AS running, count(*) FILTER (WHERE status = 'succeeded') AS succeeded,
    count(*) FILTER (WHERE status = 'failed') AS failed, count(*) FILTER (WHERE status = 'cancelled') AS cancelled
    FROM begun GROUP BY tenant_id
), used AS (
    SELECT b.tenant_id, sum(s.input_tokens)::bigint AS input_tokens, sum(s.output_tokens)::bigint AS output_tokens
    FROM begun b JOIN run_steps s ON s.run_id = b.id GROUP BY b.tenant_id
), tenants AS (
    SELECT tenant_id FROM had UNION SELECT tenant_id FROM ran UNION SELECT %s::text WHERE %s::text IS NOT NULL
)
INSERT INTO reports (tenant_id, id, since, until, {", ".join(_COUNTED)})
SELECT tenant_id, %s, %s, %s, {", ".join(f"coalesce({name}, 0)" for name in _COUNTED)}
FROM tenants LEFT JOIN had USING (tenant_id) LEFT JOIN ran USING (tenant_id) LEFT JOIN used USING (tenant_id)
"""  # noqa: S608


def prune() -> Script[int]:
    """Forget some of the reports of long ago; returns how many. It goes through all: to be done seldom."""
    rows = yield (
        "DELETE FROM reports WHERE (tenant_id, id) IN (SELECT tenant_id, id FROM reports WHERE id < %s AND made_at < "
        "now() - %s::interval ORDER BY id LIMIT %s FOR UPDATE SKIP LOCKED) RETURNING 1",
        (first_of(SYSTEM.now() - KEPT), KEPT, PRUNED_AT_ONCE),
    )
    return len(rows)


def make(report_id: UUID, tenant_id: str | None, since: datetime, until: datetime) -> Script[None]:
    """Count for a tenant, or for each of all that have documents or runs; all of it as of one moment.

    Args:
        report_id: of the fire.
        tenant_id: None means all.
        since: runs that were begun after it,
        until: and not after this.
    """
    of_tenant = (tenant_id, tenant_id)
    yield _MAKE, (*of_tenant, first_of(since - _SLACK), since, until, *of_tenant, *of_tenant, report_id, since, until)


def page(tenant_id: str, *, limit: int, before: UUID | None = None) -> Script[list[Report]]:
    """A tenant's reports, newest first; `before` is the id of the last one of the page before."""
    rows = yield (
        f"SELECT {_COLUMNS} FROM reports WHERE tenant_id = %s AND (%s::uuid IS NULL OR id < %s) "  # noqa: S608
        "ORDER BY id DESC LIMIT %s",
        (tenant_id, before, before, limit),
    )
    return [Report(*row) for row in rows]
