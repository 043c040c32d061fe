"""Signatures by Standard Webhooks 1.0.0, and what its library (1.1.0) lets pass."""

from datetime import UTC, datetime, timedelta, timezone

import pytest
from standardwebhooks.webhooks import Webhook, WebhookVerificationError

from offsetzero.consumers.groups.webhooks import signing

SECRET, OTHER = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw", "whsec_C2FVsBQIhrscChlQIMV+b5sSYspob7oD"
VECTORS = [
    pytest.param(
        SECRET,
        "msg_p5jXN8AQM9LWM0D4loKWxJek",
        1614265330,
        '{"test": 2432232314}',
        "v1,g0hM9SsE+OTPJTGt/tmIKtSyZlE3uFJELVlNIOLJ1OE=",
        id="of the specification",
    ),
    pytest.param(
        OTHER,
        "msg_27UH4WbU6Z5A5EzD8u03UvzRbpk",
        1649367553,
        '{"email":"test@example.com","username":"test_user"}',
        "v1,tZ1I4/hDygAJgO5TYxiSd6Sd0kDW6hPenDe+bTa3Kkw=",
        id="of its users",
    ),
]


@pytest.mark.parametrize("hours", [0, 2, -11.5])
@pytest.mark.parametrize(("secret", "message_id", "seconds", "body", "signature"), VECTORS)
def test_a_message_is_signed_as_the_vectors_say_in_every_zone(
    secret: str, message_id: str, seconds: int, body: str, signature: str, hours: float
) -> None:
    at = datetime.fromtimestamp(seconds, timezone(timedelta(hours=hours)))
    assert signing.headers([secret], message_id, at, body) == {
        "webhook-id": message_id,
        "webhook-timestamp": str(seconds),
        "webhook-signature": signature,
    }


def test_what_would_be_signed_wrongly_is_refused() -> None:
    at = datetime.fromtimestamp(1614265330, UTC)
    with pytest.raises(TypeError, match="bytes"):
        signing.headers([SECRET], "msg_1", at, b"{}")  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="aware"):
        signing.headers([SECRET], "msg_1", at.replace(tzinfo=None), "{}")
    with pytest.raises(ValueError, match="secret"):
        signing.headers([], "msg_1", at, "{}")


def test_each_live_secret_verifies_a_message() -> None:
    body = '{"text":"größer"}'
    signed = signing.headers([SECRET, OTHER], "msg_1", datetime.now(UTC), body)
    for secret in (SECRET, OTHER):
        Webhook(secret).verify(body, signed)
        signing.verify(secret, body.encode(), {name.title(): value for name, value in signed.items()})
    with pytest.raises(WebhookVerificationError):
        signing.verify("whsec_" + "A" * 32, body.encode(), signed)


@pytest.mark.parametrize("odd", ["v1", "v1,%%%", "v1,AAAA", "v2,x,y", "", "v1,x", "no signature"])
def test_an_entry_that_is_no_signature_hides_none_behind_it(odd: str) -> None:
    signed = signing.headers([SECRET], "msg_1", datetime.now(UTC), "{}")
    signed["webhook-signature"] = f"{odd} {signed['webhook-signature']}"
    signing.verify(SECRET, b"{}", signed)


@pytest.mark.parametrize(
    "change",
    [
        {"webhook-id": "msg_2"},
        {"webhook-timestamp": "1614265330"},
        {"webhook-timestamp": "soon"},
        {"webhook-signature": ""},
        {"webhook-signature": "v1,%%%"},
    ],
)
def test_what_is_not_signed_by_us_now_is_refused(change: dict[str, str]) -> None:
    signed = signing.headers([SECRET], "msg_1", datetime.now(UTC), "{}")
    with pytest.raises(WebhookVerificationError):
        signing.verify(SECRET, b"{}", {**signed, **change})
    for body in (b"{ }", b"\xff"):
        with pytest.raises(WebhookVerificationError):
            signing.verify(SECRET, body, signed)
