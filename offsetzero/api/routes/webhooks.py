"""Webhooks: where a tenant wants to be told how runs end."""

import base64
import secrets
from uuid import UUID

from fastapi import APIRouter, Response

from offsetzero.api import idempotency
from offsetzero.api.described import errors
from offsetzero.api.idempotency import MayRepeat, answer_of
from offsetzero.api.models import NewWebhookAnswer, WebhookAnswer, WebhookRequest, WebhooksAnswer
from offsetzero.api.problems import Problem, not_found
from offsetzero.api.services import Tenant, WithServices
from offsetzero.consumers.groups.webhooks import targets
from offsetzero.consumers.groups.webhooks.messages import EVENT_TYPES
from offsetzero.schemas.ids import uuid7
from offsetzero.store import webhooks
from offsetzero.store.database import AsyncConnection
from offsetzero.store.script import arun

router = APIRouter(tags=["webhooks"])

MOST = 20
"""Subscriptions of one tenant."""


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
        "invalid-request",
        *idempotency.CODES,
    ),
    response_model=NewWebhookAnswer,
)
async def subscribe(body: WebhookRequest, once: MayRepeat, services: WithServices) -> Response:
    """Messages are signed by Standard Webhooks 1.0.0 with the secret in the answer, which is shown only this once."""
    unknown = sorted(set(body.event_types) - set(EVENT_TYPES))
    if unknown:
        known = ", ".join(EVENT_TYPES)
        raise Problem(422, "unknown-event-type", f"no such event type: {', '.join(unknown)}; there are {known}")
    try:
        targets.check_url(body.url, allow_private=services.settings.webhooks.allow_private_targets)
    except targets.TargetRefused as error:
        raise Problem(422, "url-refused", str(error)) from error
    secret = "whsec_" + base64.b64encode(secrets.token_bytes(32)).decode()
    types = [name for name in EVENT_TYPES if name in body.event_types]

    async def work(connection: AsyncConnection) -> Response:
        added = await arun(connection, webhooks.add(uuid7(), once.tenant_id, body.url, secret, types, most=MOST))
        if added is None:
            raise Problem(409, "too-many-webhooks", f"there are {MOST} webhooks already; delete one first")
        return answer_of(NewWebhookAnswer(**WebhookAnswer.model_validate(added).model_dump(), secret=secret), 201)

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
    responses=errors("not-found", "invalid-request"),
)
async def read(webhook_id: UUID, tenant: Tenant, services: WithServices) -> WebhookAnswer:
    """A subscription with its last delivery, without its secret."""
    found = await services.run(webhooks.find(tenant, webhook_id))
    if found is None:
        raise not_found("webhook")
    return WebhookAnswer.model_validate(found)


@router.delete(
    "/webhooks/{webhook_id}",
    status_code=204,
    operation_id="delete_webhook",
    summary="End a subscription",
    responses=errors("not-found", "invalid-request"),
)
async def unsubscribe(webhook_id: UUID, tenant: Tenant, services: WithServices) -> None:
    """Nothing more is sent to it; its history of deliveries goes with it."""
    if not await services.run(webhooks.delete(tenant, webhook_id)):
        raise not_found("webhook")
