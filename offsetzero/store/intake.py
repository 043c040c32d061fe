"""What uploads write: documents, runs, steps and events of any number of them, in one statement."""

from collections.abc import Sequence
from dataclasses import dataclass
from uuid import UUID

from offsetzero.store.documents import Document
from offsetzero.store.lanes import Lane
from offsetzero.store.outbox import OutboxRow
from offsetzero.store.script import Script


@dataclass(frozen=True, slots=True)
class New:
    """A document that is to be added, with its first run. `event` is as the lane for live traffic has it."""

    document: Document
    run_id: UUID
    asked: Lane
    event: OutboxRow


# Documents in one order, so that two statements of many never wait for each other. The lane by the rule of
# `lanes.choose`: those before it in this statement count, too.
_ADD = """
WITH asked AS MATERIALIZED (
    SELECT * FROM unnest(%s::uuid[], %s::text[], %s::text[], %s::text[], %s::text[], %s::bigint[], %s::text[],
        %s::timestamptz[], %s::uuid[], %s::text[], %s::uuid[], %s::bytea[], %s::jsonb[]) WITH ORDINALITY
    AS one (id, tenant_id, name, content_type, uri, size_bytes, sha256, uploaded_at, run_id, lane, event_id, payload,
        headers, place)
), document AS (
    INSERT INTO documents (id, tenant_id, name, content_type, uri, size_bytes, sha256, uploaded_at)
    SELECT id, tenant_id, name, content_type, uri, size_bytes, sha256, uploaded_at FROM asked ORDER BY tenant_id, sha256
    ON CONFLICT (tenant_id, sha256) WHERE deleted_at IS NULL DO NOTHING RETURNING id
), added AS MATERIALIZED (
    SELECT *, row_number() OVER (PARTITION BY tenant_id, lane ORDER BY place) AS number
    FROM asked JOIN document USING (id)
), busy AS MATERIALIZED (
    SELECT tenant_id, (SELECT count(*) FROM (SELECT FROM runs WHERE runs.tenant_id = tenants.tenant_id
        AND finished_at IS NULL AND lane = 'normal' LIMIT %s) AS found) AS runs
    FROM (SELECT DISTINCT tenant_id FROM added WHERE lane = 'normal') AS tenants
), run AS (
    INSERT INTO runs (id, tenant_id, document_id, lane, created_at)
    SELECT run_id, tenant_id, id, CASE WHEN lane = 'normal' AND busy.runs + number <= %s THEN 'normal' ELSE 'bulk' END,
        clock_timestamp()
    FROM added LEFT JOIN busy USING (tenant_id) ORDER BY place RETURNING id, document_id, lane
), steps AS (
    INSERT INTO run_steps (run_id, step, required) SELECT id, unnest(%s::text[]), true FROM run
), events AS (
    INSERT INTO outbox (id, aggregatetype, aggregateid, type, payload, topic, headers)
    SELECT event_id, %s, added.id::text, %s, payload, CASE run.lane WHEN 'normal' THEN %s ELSE %s END, headers
    FROM added JOIN run ON run.id = run_id ORDER BY place
)
SELECT document_id, lane FROM run
"""


def add(news: Sequence[New], *, steps: Sequence[str], most: int, bulk_topic: str) -> Script[list[Lane | None]]:
    """Add documents, each with a queued run, its required steps and its event; all of them or, on an error, none.

    Args:
        news: at least one.
        steps: that a run needs to end.
        most: runs that a tenant may have in flight in the lane for live traffic.
        bulk_topic: where the events of the lane for backfill go.

    Returns:
        The lane that each one's event takes. None where the tenant has that content already: nothing was added; it
        waits for an upload or a deletion of it in progress.
    """
    documents, events = [new.document for new in news], [new.event for new in news]
    rows = yield (
        _ADD,
        (
            [one.id for one in documents],
            [one.tenant_id for one in documents],
            [one.name for one in documents],
            [one.content_type for one in documents],
            [one.uri for one in documents],
            [one.size_bytes for one in documents],
            [one.sha256 for one in documents],
            [one.uploaded_at for one in documents],
            [new.run_id for new in news],
            [new.asked.value for new in news],
            [one.id for one in events],
            [one.payload for one in events],
            [one.headers for one in events],
            *(most, most, list(steps)),
            *(events[0].aggregatetype, events[0].type, events[0].topic, bulk_topic),
        ),
    )
    lanes = {document_id: Lane(lane) for document_id, lane in rows}
    return [lanes.get(one.id) for one in documents]
