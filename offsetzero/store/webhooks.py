"""Subscriptions of tenants to events."""

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
    """Where a tenant wants which events, and how the last delivery went. Until `previous_secret_until` messages are
    signed with the secret before this one, too."""

    id: UUID
    url: str
    event_types: list[str]
    created_at: datetime
    disabled_at: datetime | None
    previous_secret_until: datetime | None
    last_delivery: Delivery | None = None


_COLUMNS = (
    "id, url, event_types, created_at, disabled_at, CASE WHEN previous_until > now() THEN previous_until END AS until"
)
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


def change(
    tenant_id: str,
    webhook_id: UUID,
    *,
    url: str | None = None,
    event_types: Sequence[str] | None = None,
    enabled: bool | None = None,
) -> Script[Subscription | None]:
    """Change what is not None of a tenant's subscription; None when there is none."""
    yield (
        "UPDATE webhooks SET url = coalesce(%s, url), event_types = coalesce(%s, event_types), disabled_at = CASE "
        "WHEN %s THEN NULL WHEN NOT %s THEN coalesce(disabled_at, now()) ELSE disabled_at END "
        "WHERE id = %s AND tenant_id = %s",
        (url, None if event_types is None else list(event_types), enabled, enabled, webhook_id, tenant_id),
    )
    return (yield from find(tenant_id, webhook_id))


def rotate(tenant_id: str, webhook_id: UUID, secret: str, keep_seconds: float) -> Script[Subscription | None]:
    """Give a tenant's subscription another secret. None when there is none.

    Args:
        secret: the new one.
        keep_seconds: for how long the one before it lives on; one before that ends now.
    """
    yield (
        "UPDATE webhooks SET secret = %s, previous_secret = CASE WHEN %s > 0 THEN secret END, "
        "previous_until = CASE WHEN %s > 0 THEN now() + make_interval(secs => %s) END WHERE id = %s AND tenant_id = %s",
        (secret, keep_seconds, keep_seconds, keep_seconds, webhook_id, tenant_id),
    )
    return (yield from find(tenant_id, webhook_id))


def forget_secrets() -> Script[None]:
    """Forget the secrets before the last ones that live no more."""
    yield (
        "UPDATE webhooks SET previous_secret = NULL, previous_until = NULL WHERE previous_until <= now()",
        (),
    )


def disable(webhook_id: UUID) -> Script[None]:
    """Send nothing more to a subscription whose receiver wants no more."""
    yield (
        "UPDATE webhooks SET disabled_at = now() WHERE id = %s AND disabled_at IS NULL",
        (webhook_id,),
    )


def _subscription(row: tuple[Any, ...]) -> Subscription:
    webhook_id, url, event_types, created_at, disabled_at, until, *last = row
    delivery = None if last[0] is None else Delivery(*last)
    return Subscription(webhook_id, url, event_types, created_at, disabled_at, until, delivery)
