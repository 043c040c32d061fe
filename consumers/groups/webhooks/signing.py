"""Signatures by Standard Webhooks 1.0.0: the library, without what it lets pass (1.1.0).

Given bytes, or a time of another zone than UTC, it signs something else without a word; one entry that is no signature,
before a good one, it takes for an error.
"""

import re
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime

from standardwebhooks.webhooks import Webhook, WebhookVerificationError

_SIGNATURE = re.compile(r"v1,[A-Za-z0-9+/]{43}=", re.ASCII)  # of 32 bytes


def headers(secrets: Sequence[str], message_id: str, at: datetime, body: str) -> dict[str, str]:
    """The headers that let a receiver verify a message.

    Args:
        secrets: `whsec_…`, each that is live: a signature for each, so that receivers can change theirs at any time.
        message_id: the same in every attempt.
        at: when this attempt is made, aware.
        body: the text whose UTF-8 is sent.

    Raises:
        TypeError: the body is no text.
        ValueError: the time is not aware, or there is no secret.
    """
    if not isinstance(body, str):
        raise TypeError(f"sign the text of a webhook, not {type(body).__name__}")
    if at.tzinfo is None or not secrets:
        raise ValueError("a webhook is signed with a secret, at an aware time")
    at = at.astimezone(UTC)
    return {
        "webhook-id": message_id,
        "webhook-timestamp": str(int(at.timestamp())),
        "webhook-signature": " ".join(Webhook(secret).sign(message_id, at, body) for secret in secrets),
    }


def verify(secret: str, body: bytes, received: Mapping[str, str]) -> None:
    """Verify a message as its receiver.

    Args:
        secret: `whsec_…`.
        body: as it came.
        received: the headers as they came; the case of names is of no matter.

    Raises:
        WebhookVerificationError: it is not signed with this secret, or its time is more than 5 minutes from now.
    """
    known = {name.lower(): value for name, value in received.items()}
    signatures = _SIGNATURE.findall(known.get("webhook-signature", ""))
    known["webhook-signature"] = " ".join(signatures)
    try:
        Webhook(secret).verify(body, known, json_parse=False)
    except UnicodeDecodeError as error:
        raise WebhookVerificationError("the body is no UTF-8") from error
