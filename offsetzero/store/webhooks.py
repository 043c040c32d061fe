"""Subscriptions of tenants to events, and what was delivered to each."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any
from uuid import UUID

from offsetzero.store.script import Script


@dataclass(frozen=True, slots=True)
class Delivery:
    """The newest attempt to deliver a message. `attempts` counts those of the same message."""

    at: datetime
    message_id: str
    event_type: str
    attempts: int
    delivered: bool
    status_code: int | None
    error: str | None


@dataclass(frozen=True, slots=True)
class Subscription:
    """Where a tenant wants which events, and how the last delivery went."""

    id: UUID
    url: str
    event_types: list[str]
    created_at: datetime
    disabled_at: datetime | None
    last_delivery: Delivery | None = None


@dataclass(frozen=True, slots=True)
class Target:
    """A subscription that a message is still owed to."""

    id: UUID
    url: str
    secret: str


_COLUMNS = "id, url, event_types, created_at, disabled_at"
_LAST = (
    f"SELECT {_COLUMNS}, d.* FROM webhooks LEFT JOIN LATERAL ("  # noqa: S608
    "SELECT attempted_at, message_id, event_type, attempts, delivered_at IS NOT NULL AS delivered, status_code, error "
    "FROM webhook_deliveries WHERE webhook_id = webhooks.id ORDER BY attempted_at DESC LIMIT 1"
    ") AS d ON true WHERE tenant_id = %s"
)


def add(
    webhook_id: UUID, tenant_id: str, url: str, secret: str, event_types: Sequence[str], *, most: int
) -> Script[Subscription | None]:
    """Add a subscription. None when the tenant has `most` of them already."""
    yield "SELECT pg_advisory_xact_lock(hashtextextended('webhooks ' || %s, 0))", (tenant_id,)
    rows = yield (
        "INSERT INTO webhooks (id, tenant_id, url, secret, event_types) SELECT %s, %s, %s, %s, %s "  # noqa: S608
        f"WHERE (SELECT count(*) FROM webhooks WHERE tenant_id = %s) < %s RETURNING {_COLUMNS}",
        (webhook_id, tenant_id, url, secret, list(event_types), tenant_id, most),
    )
    return Subscription(*rows[0]) if rows else None


def list_all(tenant_id: str) -> Script[list[Subscription]]:
    """A tenant's subscriptions, oldest first."""
    rows = yield _LAST + " ORDER BY created_at, id", (tenant_id,)
    return [_subscription(row) for row in rows]


def find(tenant_id: str, webhook_id: UUID) -> Script[Subscription | None]:
    """A tenant's subscription; None when there is none and when it is another's."""
    rows = yield _LAST + " AND id = %s", (tenant_id, webhook_id)
    return _subscription(rows[0]) if rows else None


def delete(tenant_id: str, webhook_id: UUID) -> Script[bool]:
    """Remove a tenant's subscription and its history. False when there was none."""
    rows = yield (
        "DELETE FROM webhooks WHERE id = %s AND tenant_id = %s RETURNING 1",
        (webhook_id, tenant_id),
    )
    return bool(rows)


def owed(tenant_id: str, event_type: str, message_id: str, generation: int = 1) -> Script[list[Target]]:
    """The subscriptions that a message was not delivered to yet, in a generation of the notifier."""
    rows = yield (
        "SELECT w.id, w.url, w.secret FROM webhooks w "
        "LEFT JOIN webhook_deliveries d ON d.webhook_id = w.id AND d.message_id = %s AND d.generation = %s "
        "WHERE w.tenant_id = %s AND %s = ANY (w.event_types) AND w.disabled_at IS NULL "
        "AND d.delivered_at IS NULL ORDER BY w.id",
        (message_id, generation, tenant_id, event_type),
    )
    return [Target(*row) for row in rows]


def would_go(messages: Mapping[tuple[str, str], int]) -> Script[tuple[int, int]]:
    """How many deliveries so many messages are, and to how many subscriptions, as these are now.

    Args:
        messages: how many, by tenant and event type.
    """
    rows = yield (
        "SELECT coalesce(sum(m.count), 0), count(DISTINCT w.id) FROM unnest(%s::text[], %s::text[], %s::bigint[]) "
        "AS m (tenant_id, event_type, count) JOIN webhooks w ON w.tenant_id = m.tenant_id "
        "AND m.event_type = ANY (w.event_types) AND w.disabled_at IS NULL",
        ([tenant for tenant, _ in messages], [kind for _, kind in messages], list(messages.values())),
    )
    return int(rows[0][0]), int(rows[0][1])


def record(
    webhook_id: UUID,
    message_id: str,
    event_type: str,
    *,
    delivered: bool,
    status_code: int | None,
    error: str | None,
    generation: int = 1,
) -> Script[None]:
    """Note an attempt. One that was delivered stays delivered; a subscription that is gone is no error."""
    yield (
        "INSERT INTO webhook_deliveries AS d "
        "(webhook_id, message_id, generation, event_type, attempts, status_code, error, delivered_at) "
        "SELECT id, %s, %s, %s, 1, %s, %s, CASE WHEN %s THEN now() END FROM webhooks WHERE id = %s "
        "ON CONFLICT (webhook_id, message_id, generation) DO UPDATE SET attempts = d.attempts + 1, "
        "status_code = excluded.status_code, error = excluded.error, attempted_at = now(), "
        "delivered_at = coalesce(d.delivered_at, excluded.delivered_at)",
        (message_id, generation, event_type, status_code, error, delivered, webhook_id),
    )


def disable(webhook_id: UUID) -> Script[None]:
    """Send nothing more to a subscription whose receiver wants no more."""
    yield (
        "UPDATE webhooks SET disabled_at = now() WHERE id = %s AND disabled_at IS NULL",
        (webhook_id,),
    )


def _subscription(row: tuple[Any, ...]) -> Subscription:
    webhook_id, url, event_types, created_at, disabled_at, *last = row
    delivery = None if last[0] is None else Delivery(*last)
    return Subscription(webhook_id, url, event_types, created_at, disabled_at, delivery)
