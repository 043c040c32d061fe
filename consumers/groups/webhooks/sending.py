"""One attempt to deliver one message to one receiver."""

import asyncio
import ssl
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cache
from importlib.metadata import version

import httpx

from offsetzero import logs
from offsetzero.clock import SYSTEM
from offsetzero.consumers.groups.webhooks import signing, targets
from offsetzero.retry.classify import of_status
from offsetzero.settings import WebhookSettings

GONE = 410

log = logs.get(__name__)


@dataclass(frozen=True, slots=True)
class Attempt:
    """How an attempt went, and how many seconds it took. `refused` will not go better a second time."""

    status_code: int | None = None
    error: str | None = None
    refused: bool = False
    retry_after: float | None = None
    seconds: float = field(default=0.0, compare=False)

    @property
    def delivered(self) -> bool:
        """Whether the receiver took the message."""
        return self.status_code is not None and 200 <= self.status_code < 300


async def send(
    url: str,
    secrets: Sequence[str],
    message_id: str,
    body: str,
    settings: WebhookSettings,
    headers: Mapping[str, str] | None = None,
) -> Attempt:
    """Sign a message and send it. Nothing that the receiver does makes this raise; redirects are not followed.

    Args:
        url: as the tenant gave it; it is checked again, because names change their addresses.
        secrets: `whsec_…`, each that is live.
        message_id: the same in every attempt.
        headers: sent, too: those of `Context.trace_headers`.
    """
    begun = SYSTEM.monotonic()
    signed = {**(headers or {}), **signing.headers(secrets, message_id, SYSTEM.now(), body)}
    attempt = await _attempt(url, signed, body, settings)
    return replace(attempt, seconds=SYSTEM.monotonic() - begun)


async def _attempt(url: str, signed: Mapping[str, str], body: str, settings: WebhookSettings) -> Attempt:
    try:
        async with asyncio.timeout(settings.total_timeout):
            target = await targets.resolve(url, allow_private=settings.allow_private_targets)
            return await _post(target, signed, body, settings)
    except targets.TargetRefused as error:
        if error.hint:
            log.info("webhook refused", why=str(error), next=error.hint)
        return Attempt(error=str(error), refused=True)
    except TimeoutError:
        return Attempt(error=f"no answer within {settings.total_timeout:g} s")
    except (httpx.HTTPError, OSError, UnicodeError) as error:
        return Attempt(error=f"{type(error).__name__}: {error}"[:300])


async def _post(target: targets.Target, signed: Mapping[str, str], body: str, settings: WebhookSettings) -> Attempt:
    headers = {
        **signed,
        "Host": target.host_header,
        "Content-Type": "application/json; charset=utf-8",
        "User-Agent": _user_agent(),
    }
    timeout = httpx.Timeout(settings.total_timeout, connect=settings.connect_timeout)
    # A proxy of the environment would resolve the name again: it is not used.
    async with (
        httpx.AsyncClient(verify=_tls(), timeout=timeout, trust_env=False) as client,
        client.stream(
            "POST",
            target.pinned,
            content=body.encode(),
            headers=headers,
            extensions={"sni_hostname": target.name},
        ) as response,
    ):
        status = response.status_code  # the body of the answer is not read: nobody needs it
        if 200 <= status < 300:
            return Attempt(status)
        wait = of_status(429, response.headers.get("retry-after")).retry_after
        return Attempt(status, f"the receiver answered {status}", refused=status == GONE, retry_after=wait)


@cache
def _tls() -> ssl.SSLContext:
    return httpx.create_ssl_context(trust_env=False)


@cache
def _user_agent() -> str:
    return f"offsetzero/{version('offsetzero')}"
