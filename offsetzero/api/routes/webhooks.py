"""Webhooks: where a tenant wants to be told how runs end."""

import base64
import secrets
from typing import Annotated, TypeVar
from uuid import UUID, uuid4

from fastapi import APIRouter, Query, Response

from offsetzero import logs
from offsetzero.api import idempotency
from offsetzero.api.described import errors
from offsetzero.api.idempotency import MayRepeat, answer_of
from offsetzero.api.parameters import ExactRoute
from offsetzero.api.problems import Problem, not_found, too_many
from offsetzero.api.services import Services, Tenant, WithServices
from offsetzero.api.webhook_models import (
    AttemptAnswer,
    AttemptsAnswer,
    NewWebhookAnswer,
    RotationRequest,
    WebhookAnswer,
    WebhookChange,
    WebhookRequest,
    WebhooksAnswer,
)
from offsetzero.consumers.groups.webhooks import messages, targets
from offsetzero.consumers.groups.webhooks.messages import EVENT_TYPES
from offsetzero.consumers.groups.webhooks.sending import send
from offsetzero.schemas.ids import uuid7
from offsetzero.store import webhook_deliveries, webhooks
from offsetzero.store.database import AsyncConnection
from offsetzero.store.script import arun
from offsetzero.store.webhooks import Subscription

T = TypeVar("T")
router = APIRouter(tags=["webhooks"], route_class=ExactRoute)
log = logs.get(__name__)

MOST = 20
"""Subscriptions of one tenant."""
TRIES_PER_SECOND, TRIES_AT_ONCE = 1.0, 10
"""Of one tenant, by each API process: each try is a connection of ours to a server that may not be the tenant's."""


@router.post(
    "/webhooks",
    status_code=201,
    operation_id="create_webhook",
    summary="Subscribe to events",
    responses=errors(
        "malformed-body",
        "too-large",
        "too-many-webhooks",
        "not-json",
        "url-refused",
        "unknown-event-type",
        *idempotency.CODES,
    ),
    response_model=NewWebhookAnswer,
)
async def subscribe(body: WebhookRequest, once: MayRepeat, services: WithServices) -> Response:
    """Messages are signed by Standard Webhooks 1.0.0 with the secret in the answer, which is shown only this once."""
    types = _known(body.event_types)
    _check(body.url, services)
    secret = _new_secret()

    async def work(connection: AsyncConnection) -> Response:
        added = await arun(connection, webhooks.add(uuid7(), once.tenant_id, body.url, secret, types, most=MOST))
        if added is None:
            raise Problem(409, "too-many-webhooks", f"there are {MOST} webhooks already; delete one first")
        return _with_secret(added, secret, 201)

    return await once.do(body.model_dump_json(), work)


@router.get("/webhooks", operation_id="list_webhooks", summary="List subscriptions", responses=errors())
async def list_all(tenant: Tenant, services: WithServices) -> WebhooksAnswer:
    """All subscriptions, oldest first, each with its last delivery; without their secrets."""
    found = await services.run(webhooks.list_all(tenant))
    return WebhooksAnswer(webhooks=[WebhookAnswer.model_validate(item) for item in found])


@router.get(
    "/webhooks/{webhook_id}",
    operation_id="get_webhook",
    summary="Read a subscription",
    responses=errors("not-found"),
)
async def read(webhook_id: UUID, tenant: Tenant, services: WithServices) -> WebhookAnswer:
    """A subscription with its last delivery, without its secret."""
    return WebhookAnswer.model_validate(_found(await services.run(webhooks.find(tenant, webhook_id))))


@router.patch(
    "/webhooks/{webhook_id}",
    operation_id="update_webhook",
    summary="Change a subscription",
    responses=errors(
        "malformed-body",
        "not-found",
        "too-large",
        "not-json",
        "url-refused",
        "unknown-event-type",
    ),
)
async def change(webhook_id: UUID, body: WebhookChange, tenant: Tenant, services: WithServices) -> WebhookAnswer:
    """Another URL, other event types, off and on. What ends while it is off is not told later."""
    types = None if body.event_types is None else _known(body.event_types)
    if body.url is not None:
        _check(body.url, services)
    changed = webhooks.change(tenant, webhook_id, url=body.url, event_types=types, enabled=body.enabled)
    return WebhookAnswer.model_validate(_found(await services.run(changed)))


@router.delete(
    "/webhooks/{webhook_id}",
    status_code=204,
    operation_id="delete_webhook",
    summary="End a subscription",
    responses=errors("not-found"),
)
async def unsubscribe(webhook_id: UUID, tenant: Tenant, services: WithServices) -> None:
    """Nothing more is sent to it; its history of deliveries goes with it."""
    if not await services.run(webhooks.delete(tenant, webhook_id)):
        raise not_found("webhook")


@router.post(
    "/webhooks/{webhook_id}/secret",
    operation_id="rotate_secret",
    summary="Rotate the secret of a subscription",
    responses=errors("malformed-body", "not-found", "too-large", "not-json", *idempotency.CODES),
    response_model=NewWebhookAnswer,
)
async def rotate(webhook_id: UUID, once: MayRepeat, body: RotationRequest | None = None) -> Response:
    """Messages are signed with the new secret and, for a day or what `keep_seconds` says, with the one before it, too.

    The secret is shown only this once. Two are live at most: where there were two, the older one ends now.
    """
    asked, secret = body or RotationRequest(), _new_secret()

    async def work(connection: AsyncConnection) -> Response:
        rotated = await arun(connection, webhooks.rotate(once.tenant_id, webhook_id, secret, asked.keep_seconds))
        return _with_secret(_found(rotated), secret, 200)

    return await once.do(asked.model_dump_json(), work)


@router.post(
    "/webhooks/{webhook_id}/test",
    operation_id="test_webhook",
    summary="Try a subscription",
    responses=errors("not-found"),
)
async def try_out(webhook_id: UUID, tenant: Tenant, services: WithServices) -> AttemptAnswer:
    """Sends a message of the type `webhook.test` now, also where the subscription is off, and says how that went.

    It is signed and checked like any other, has one attempt, and is in the log of deliveries.
    """
    target = _found(await services.run(webhook_deliveries.target(tenant, webhook_id)))
    if (seconds := services.tries.take(tenant)) > 0:
        raise too_many(f"webhooks are tried {TRIES_AT_ONCE} times at once, then once a second", seconds)
    message_id = f"msg_{uuid4().hex}"
    body = messages.test_payload(webhook_id, services.clock.now())
    attempt = await send(target.url, target.secrets, message_id, body, services.settings.webhooks)
    recorded = webhook_deliveries.record(
        webhook_id,
        message_id,
        messages.TEST,
        delivered=attempt.delivered,
        status_code=attempt.status_code,
        error=attempt.error,
        seconds=attempt.seconds,
    )
    return AttemptAnswer.model_validate(_found(await services.run(recorded)))


@router.get(
    "/webhooks/{webhook_id}/deliveries",
    operation_id="list_deliveries",
    summary="List attempts to deliver",
    responses=errors("not-found"),
)
async def deliveries(
    webhook_id: UUID,
    tenant: Tenant,
    services: WithServices,
    limit: Annotated[int, Query(ge=1, le=200)] = 50,
    before: UUID | None = None,
    delivered: bool | None = None,
) -> AttemptsAnswer:
    """Each attempt of the last 30 days, newest first; `before` continues after the last one of the page before."""
    _found(await services.run(webhooks.find(tenant, webhook_id)))
    page = webhook_deliveries.page(webhook_id, limit=limit + 1, before=before, delivered=delivered)
    found = await services.run(page)
    shown = [AttemptAnswer.model_validate(attempt) for attempt in found[:limit]]
    return AttemptsAnswer(attempts=shown, next=shown[-1].id if len(found) > limit else None)


def _found(item: T | None) -> T:
    if item is None:
        raise not_found("webhook")
    return item


def _with_secret(subscription: Subscription, secret: str, status: int) -> Response:
    return answer_of(NewWebhookAnswer(**WebhookAnswer.model_validate(subscription).model_dump(), secret=secret), status)


def _new_secret() -> str:
    return "whsec_" + base64.b64encode(secrets.token_bytes(32)).decode()


def _known(event_types: list[str]) -> list[str]:
    """The event types in their order, each once."""
    unknown = sorted(set(event_types) - set(EVENT_TYPES))
    if unknown:
        known = ", ".join(EVENT_TYPES)
        raise Problem(422, "unknown-event-type", f"no such event type: {', '.join(unknown)}; there are {known}")
    return [name for name in EVENT_TYPES if name in event_types]


def _check(url: str, services: Services) -> None:
    try:
        targets.check_url(url, allow_private=services.settings.webhooks.allow_private_targets)
    except targets.TargetRefused as error:
        if error.hint:
            log.info("webhook refused", why=str(error), next=error.hint)
        raise Problem(422, "url-refused", str(error)) from error
