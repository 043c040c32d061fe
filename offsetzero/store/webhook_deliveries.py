"""What is owed to subscriptions, and what became of each attempt to deliver it."""

from dataclasses import dataclass
from datetime import datetime, timedelta
from uuid import UUID

from offsetzero.clock import SYSTEM
from offsetzero.schemas.ids import first_of, uuid7
from offsetzero.store.script import Script

KEPT = timedelta(days=30)
"""How long attempts are in the log."""
KEPT_DELIVERIES = timedelta(days=120)
"""How long it is known who has had a message, after the last attempt. Longer than dead letters are kept, 90 days: until
then an operator may have an event sent once more, and only those that have not had its message are to get it."""


@dataclass(frozen=True, slots=True)
class Target:
    """Where a message is to go, and the secrets that are live there, the newest first."""

    id: UUID
    url: str
    secrets: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class LoggedAttempt:
    """One attempt to deliver one message; `attempt` is 1 for its first."""

    id: UUID
    message_id: str
    event_type: str
    attempt: int
    at: datetime
    duration_ms: int
    delivered: bool
    status_code: int | None
    error: str | None


_TARGET = "w.id, w.url, w.secret, CASE WHEN w.previous_until > now() THEN w.previous_secret END"


def owed(tenant_id: str, event_type: str, message_id: str, generation: int = 1) -> Script[list[Target]]:
    """The subscriptions that a message was not delivered to yet, in a generation of the notifier."""
    rows = yield (
        f"SELECT {_TARGET} FROM webhooks w "  # noqa: S608
        "LEFT JOIN webhook_deliveries d ON d.webhook_id = w.id AND d.message_id = %s AND d.generation = %s "
        "WHERE w.tenant_id = %s AND %s = ANY (w.event_types) AND w.disabled_at IS NULL "
        "AND d.delivered_at IS NULL ORDER BY w.id",
        (message_id, generation, tenant_id, event_type),
    )
    return [_target(*row) for row in rows]


def target(tenant_id: str, webhook_id: UUID) -> Script[Target | None]:
    """A tenant's subscription, disabled or not; None when there is none."""
    rows = yield f"SELECT {_TARGET} FROM webhooks w WHERE w.tenant_id = %s AND w.id = %s", (tenant_id, webhook_id)  # noqa: S608
    return _target(*rows[0]) if rows else None


def record(
    webhook_id: UUID,
    message_id: str,
    event_type: str,
    *,
    delivered: bool,
    status_code: int | None,
    error: str | None,
    seconds: float = 0.0,
    generation: int = 1,
) -> Script[LoggedAttempt | None]:
    """Note an attempt. A message that was delivered stays delivered.

    Args:
        seconds: how long the attempt took.
        generation: of the notifier.

    Returns:
        What the log says of it; None when the subscription is gone, which is no error.
    """
    rows = yield (
        "INSERT INTO webhook_deliveries AS d "
        "(webhook_id, message_id, generation, event_type, attempts, status_code, error, delivered_at) "
        "SELECT id, %s, %s, %s, 1, %s, %s, CASE WHEN %s THEN now() END FROM webhooks WHERE id = %s "
        "ON CONFLICT (webhook_id, message_id, generation) DO UPDATE SET attempts = d.attempts + 1, "
        "status_code = excluded.status_code, error = excluded.error, attempted_at = now(), "
        "delivered_at = coalesce(d.delivered_at, excluded.delivered_at) RETURNING attempts, attempted_at",
        (message_id, generation, event_type, status_code, error, delivered, webhook_id),
    )
    if not rows:
        return None
    (number, at), attempt_id, milliseconds = rows[0], uuid7(), round(seconds * 1000)
    yield (
        "INSERT INTO webhook_attempts (webhook_id, id, message_id, event_type, attempt, at, duration_ms, delivered, "
        "status_code, error) VALUES (%s, %s, %s, %s, %s, %s, %s, %s, %s, %s)",
        (webhook_id, attempt_id, message_id, event_type, number, at, milliseconds, delivered, status_code, error),
    )
    yield "DELETE FROM webhook_attempts WHERE webhook_id = %s AND id < %s", (webhook_id, _oldest_id())
    yield (
        "DELETE FROM webhook_deliveries WHERE webhook_id = %s AND attempted_at < now() - %s::interval",
        (webhook_id, KEPT_DELIVERIES),
    )
    return LoggedAttempt(attempt_id, message_id, event_type, number, at, milliseconds, delivered, status_code, error)


def page(
    webhook_id: UUID, *, limit: int, before: UUID | None = None, delivered: bool | None = None
) -> Script[list[LoggedAttempt]]:
    """The log of a subscription, newest first; what is older than `KEPT` is removed by the next attempt, and not shown.

    Args:
        before: the id of the last attempt of the page before.
        delivered: only attempts that were deliveries, or only those that were none.
    """
    rows = yield (
        "SELECT id, message_id, event_type, attempt, at, duration_ms, delivered, status_code, error "
        "FROM webhook_attempts WHERE webhook_id = %s AND id >= %s AND (%s::uuid IS NULL OR id < %s) "
        "AND (%s::boolean IS NULL OR delivered = %s) ORDER BY id DESC LIMIT %s",
        (webhook_id, _oldest_id(), before, before, delivered, delivered, limit),
    )
    return [LoggedAttempt(*row) for row in rows]


def _target(webhook_id: UUID, url: str, secret: str, previous: str | None) -> Target:
    return Target(webhook_id, url, (secret,) if previous is None else (secret, previous))


def _oldest_id() -> UUID:
    """The least id that `uuid7` could make as long ago as attempts are kept."""
    return first_of(SYSTEM.now() - KEPT)
