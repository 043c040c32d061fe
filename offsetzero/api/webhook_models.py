"""The shapes of answers and requests about webhooks."""

from datetime import datetime
from typing import Annotated
from uuid import UUID

from pydantic import BaseModel, ConfigDict, Field, StrictBool, StrictInt

from offsetzero.api.models import AT, Answer, like
from offsetzero.consumers.groups.webhooks.messages import EVENT_TYPES

_EventType = Annotated[str, Field(json_schema_extra={"enum": list(EVENT_TYPES)})]
"""One that is unknown is refused with a code of its own, so the model takes any."""
_WEBHOOK = "01981f50-02c7-7a44-b0de-9c4f1e7d8812"


class WebhookRequest(BaseModel):
    """Where to send which events."""

    model_config = ConfigDict(
        extra="forbid",
        json_schema_extra={
            "examples": [{"url": "https://receiver.example/hook", "event_types": ["run.succeeded", "run.failed"]}]
        },
    )

    url: Annotated[str, Field(min_length=1, max_length=2048)]
    event_types: Annotated[list[_EventType], Field(min_length=1, max_length=len(EVENT_TYPES))] = list(EVENT_TYPES)


class WebhookChange(BaseModel):
    """What is to be different; the rest stays. `enabled` false sends nothing until it is true again."""

    model_config = ConfigDict(extra="forbid", json_schema_extra={"examples": [{"enabled": True}]})

    url: Annotated[str, Field(min_length=1, max_length=2048)] | None = None
    event_types: Annotated[list[_EventType], Field(min_length=1, max_length=len(EVENT_TYPES))] | None = None
    enabled: StrictBool | None = None


class RotationRequest(BaseModel):
    """For how many seconds messages are signed with the secret before the new one, too; 0 ends it at once."""

    model_config = ConfigDict(extra="forbid", json_schema_extra={"examples": [{"keep_seconds": 86400}]})

    keep_seconds: Annotated[StrictInt, Field(ge=0, le=7 * 24 * 60 * 60)] = 24 * 60 * 60


class DeliveryAnswer(Answer):
    """The newest attempt to deliver a message. `attempts` counts those of this message, `message_id` is its
    `webhook-id`; `status_code` is null when there was no answer, and `error` says why it is no delivery."""

    at: datetime
    message_id: str
    event_type: str
    attempts: int
    delivered: bool
    status_code: int | None
    error: str | None


_SUBSCRIPTION = {
    "id": _WEBHOOK,
    "url": "https://receiver.example/hook",
    "event_types": ["run.succeeded", "run.failed"],
    "created_at": AT,
    "disabled_at": None,
    "previous_secret_until": None,
    "last_delivery": {
        "at": AT,
        "message_id": "msg_b77fe6d1594b59d998b89ea3c8aa4792",
        "event_type": "run.failed",
        "attempts": 2,
        "delivered": False,
        "status_code": 503,
        "error": "the receiver answered 503",
    },
}


class WebhookAnswer(Answer):
    """A subscription. `disabled_at` is set once its receiver has answered 410 Gone, or its tenant has said so;
    `previous_secret_until` while two secrets are live; `last_delivery` is null until something was sent."""

    model_config = like(**_SUBSCRIPTION)

    id: UUID
    url: str
    event_types: list[str]
    created_at: datetime
    disabled_at: datetime | None
    previous_secret_until: datetime | None
    last_delivery: DeliveryAnswer | None


class NewWebhookAnswer(WebhookAnswer):
    """A subscription with the new secret that verifies its messages: it is shown only this once."""

    model_config = like(**{**_SUBSCRIPTION, "last_delivery": None, "secret": "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw…"})

    secret: str


class WebhooksAnswer(Answer):
    """A tenant's subscriptions, oldest first."""

    webhooks: list[WebhookAnswer]


class AttemptAnswer(Answer):
    """One attempt to deliver one message. `attempt` counts those of the message, `message_id` is its `webhook-id`;
    `status_code` is null when there was no answer, and `error` says why it is no delivery."""

    model_config = like(
        id="01981f51-2a10-7d03-8b7e-6f0a4c1d9e22",
        message_id="msg_b77fe6d1594b59d998b89ea3c8aa4792",
        event_type="run.failed",
        attempt=2,
        at=AT,
        duration_ms=41,
        delivered=False,
        status_code=503,
        error="the receiver answered 503",
    )

    id: UUID
    message_id: str
    event_type: str
    attempt: int
    at: datetime
    duration_ms: int
    delivered: bool
    status_code: int | None
    error: str | None


class AttemptsAnswer(Answer):
    """A page of the log of a subscription, newest first. `next` is the `before` of the next page."""

    attempts: list[AttemptAnswer]
    next: UUID | None
