"""Answers to POST requests that named an `Idempotency-Key`: what was answered once is answered again.

A request holds its key by a lock of its transaction. Whoever dies, or loses the database, lets go of it in that moment
with all that it had done; so there is no row of a request at work, nothing to expire, and nobody to clear up.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from uuid import UUID

from psycopg.types.json import Jsonb

from offsetzero.store.script import Script

KEPT = "24 hours"
"""For how long an answer is kept."""
AT_ONCE = 10_000


@dataclass(frozen=True, slots=True)
class Answer:
    """An answer as it went out, and to what.

    Attributes:
        fingerprint: of the request: its target and its payload.
        status: of HTTP.
        headers: those that belong to the answer itself.
        body: byte for byte.
        run_id: of the run that it shows, with the name of its document; such answers go with the document.
    """

    fingerprint: bytes
    status: int
    headers: dict[str, str]
    body: bytes
    run_id: UUID | None = None


def hold(tenant_id: str, key: str, *, seconds: float) -> Script[bool]:
    """Hold a key until the transaction ends.

    Args:
        seconds: for which the transaction may stand idle before PostgreSQL ends it: the holder hangs.

    Returns:
        False when another transaction holds it.
    """
    rows = yield (
        "SELECT set_config('idle_in_transaction_session_timeout', %s, true), "
        "pg_try_advisory_xact_lock(hashtextextended('idempotency ' || %s || ' ' || %s, 0))",
        (f"{round(seconds * 1000)}ms", tenant_id, key),
    )
    return bool(rows[0][1])


def find(tenant_id: str, key: str) -> Script[Answer | None]:
    """What was answered under a key; None when nothing was, or too long ago."""
    rows = yield (
        "SELECT fingerprint, status, headers, body FROM idempotency_keys "
        "WHERE tenant_id = %s AND key = %s AND at > clock_timestamp() - %s::interval",
        (tenant_id, key, KEPT),
    )
    return Answer(*rows[0]) if rows else None


def keep(tenant_id: str, key: str, answer: Answer) -> Script[None]:
    """Keep an answer under a key that the transaction holds, in place of one that has expired."""
    yield (
        "INSERT INTO idempotency_keys (tenant_id, key, fingerprint, status, headers, body, run_id) "
        "VALUES (%s, %s, %s, %s, %s, %s, %s) ON CONFLICT (tenant_id, key) DO UPDATE "
        "SET fingerprint = excluded.fingerprint, status = excluded.status, "
        "headers = excluded.headers, body = excluded.body, run_id = excluded.run_id, at = excluded.at",
        (tenant_id, key, answer.fingerprint, answer.status, Jsonb(answer.headers), answer.body, answer.run_id),
    )


def forget(run_ids: Sequence[UUID]) -> Script[None]:
    """Remove the answers that show runs. A repeat is executed again: only what changes nothing then may show one."""
    yield "DELETE FROM idempotency_keys WHERE run_id = ANY (%s)", (list(run_ids),)


def prune() -> Script[int]:
    """Remove answers that have expired, some thousands at once; returns how many."""
    rows = yield (
        "WITH gone AS (DELETE FROM idempotency_keys WHERE (tenant_id, key) IN (SELECT tenant_id, key "
        "FROM idempotency_keys WHERE at < clock_timestamp() - %s::interval ORDER BY at LIMIT %s "
        "FOR UPDATE SKIP LOCKED) RETURNING 1) SELECT count(*) FROM gone",
        (KEPT, AT_ONCE),
    )
    return int(rows[0][0])
