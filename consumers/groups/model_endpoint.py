"""Calls of an OpenAI-compatible endpoint, by plain HTTP: one JSON body there, one back, each part of it in its time.

Each bears the trace and the run of the work that it is for (`offsetzero.logs.trace_headers`).

What goes wrong is told as a class of the taxonomy: every silence, drip and broken answer is `Transient`, a status what
`offsetzero.retry.classify.of_status` makes of it. Which times, and why: docs/providers.md.
"""

import asyncio
import json
import ssl
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cache
from types import TracebackType
from typing import Any

import httpx

from offsetzero import logs
from offsetzero.retry.failures import Transient
from offsetzero.settings import EndpointSettings

MAX_ANSWER = 1024 * 1024
"""Bytes of an answer that are read, unless the caller says otherwise."""
_SENT = "http11.send_request_body.complete"


@dataclass(frozen=True, slots=True)
class Usage:
    """Tokens of a call, of what was asked and of the answer, as the endpoint counts them; None where it does not."""

    input_tokens: int | None = None
    output_tokens: int | None = None

    @classmethod
    def of(cls, answer: Mapping[str, Any]) -> "Usage":
        """That of an answer, which may hold anything."""
        usage = answer.get("usage")
        if not isinstance(usage, dict):
            return cls()
        return cls(_count(usage.get("prompt_tokens")), _count(usage.get("completion_tokens")))


class ModelEndpoint:
    """An endpoint, for several calls: `async with ModelEndpoint(settings) as endpoint`. Connections are used again.

    Args:
        settings: where it is, its key, and its time-outs.
    """

    def __init__(self, settings: EndpointSettings) -> None:
        self._settings = settings
        key = settings.api_key.get_secret_value()
        self._client = httpx.AsyncClient(
            verify=_tls(),
            headers={"Authorization": f"Bearer {key}"} if key else None,
            timeout=httpx.Timeout(
                settings.read_timeout, connect=settings.connect_timeout, write=settings.write_timeout
            ),
        )

    async def __aenter__(self) -> "ModelEndpoint":
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        await self._client.aclose()

    async def post(
        self,
        path: str,
        body: Mapping[str, Any],
        *,
        idempotency_key: str,
        sent: Callable[[], None] = lambda: None,
        max_answer: int = MAX_ANSWER,
    ) -> dict[str, Any]:
        """Ask once. A task that is cancelled meanwhile closes its connection, and with it the call.

        Args:
            path: after the base URL: `chat/completions`.
            body: becomes JSON.
            idempotency_key: sent as `Idempotency-Key`: endpoints that know it bill a repeated call once.
            sent: called once the endpoint has been given the whole of it: from then on it may have to be paid for.
            max_answer: bytes of the answer that are read.

        Returns:
            The JSON object of the answer.

        Raises:
            httpx.HTTPStatusError: any status but 2xx; redirects are not followed.
            httpx.TransportError: there is no connection, or it broke.
            Transient: `provider-timeout` when opening one, giving it the request, waiting for the next piece of the
                answer, or all of it took too long; `provider-answer` for an answer that is too large, or no object.
        """
        headers = {**logs.trace_headers(), "Idempotency-Key": idempotency_key}
        try:
            async with asyncio.timeout(self._settings.total_timeout):
                data = await self._exchange(path, body, headers, sent, max_answer)
        except TimeoutError as error:
            raise Transient("provider-timeout", f"no answer within {self._settings.total_timeout:g} s") from error
        except httpx.TimeoutException as error:
            raise Transient("provider-timeout", self._late(error)) from error
        try:
            answer = json.loads(data)
        except (ValueError, RecursionError) as error:
            raise Transient("provider-answer", "the answer is not JSON") from error
        if not isinstance(answer, dict):
            raise Transient("provider-answer", "the answer is no JSON object")
        return answer

    async def _exchange(
        self, path: str, body: Mapping[str, Any], headers: Mapping[str, str], sent: Callable[[], None], max_answer: int
    ) -> bytes:
        async def trace(event: str, _info: Mapping[str, Any]) -> None:
            if event == _SENT:
                sent()

        data = bytearray()
        async with self._client.stream(
            "POST",
            f"{self._settings.base_url.rstrip('/')}/{path}",
            json=body,
            headers=headers,
            extensions={"trace": trace},
        ) as response:
            response.raise_for_status()
            async for piece in response.aiter_bytes():
                data += piece
                if len(data) > max_answer:
                    raise Transient("provider-answer", f"the answer is larger than {max_answer} bytes")
        return bytes(data)

    def _late(self, error: httpx.TimeoutException) -> str:
        times = self._settings
        if isinstance(error, httpx.ConnectTimeout):
            return f"no connection within {times.connect_timeout:g} s"
        if isinstance(error, httpx.WriteTimeout):
            return f"the request was not taken within {times.write_timeout:g} s"
        return f"nothing was heard for {times.read_timeout:g} s"


def _count(value: object) -> int | None:
    return value if isinstance(value, int) and not isinstance(value, bool) and 0 <= value < 2**31 else None


@cache
def _tls() -> ssl.SSLContext:
    return httpx.create_ssl_context()  # reads the certificates: 20 ms that no call should pay again
