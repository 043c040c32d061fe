"""`Idempotency-Key`: a POST has its effect once, and the same answer however often it is sent.

By draft-ietf-httpapi-idempotency-key-header-07, and where that is silent as Stripe does it: what was executed is
answered again byte for byte, its errors too. What was refused before that (400, 413, 415, 422), and an answer that asks
for the same request once more (with `Retry-After`), leave the key as it was.
"""

import hashlib
import re
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Annotated, TypeAlias
from uuid import UUID

import psycopg
from fastapi import Depends, Header, Request, Response
from pydantic import BaseModel

from offsetzero.api.problems import Problem, internal_error
from offsetzero.api.services import Services, Tenant, WithServices
from offsetzero.store import answers
from offsetzero.store.answers import Answer
from offsetzero.store.database import AsyncConnection
from offsetzero.store.script import Script, arun

HEADER = "Idempotency-Key"
REPLAYED = "Idempotent-Replayed"
CODES = ("idempotency-key-invalid", "idempotency-key-in-use", "idempotency-key-reused")
"""The problems of an operation that takes a key."""
MAX_CHARACTERS = 255
HUNG_SECONDS = 300.0
"""Longer than it takes to store the largest upload; a process that stands still for so long has lost its key."""
_QUOTED = re.compile(r'"((?:[ !#-\[\]-~]|\\["\\])*)"')  # sf-string (RFC 8941)
_BARE = re.compile(r"[!#-~][!-~]*")
_KEPT_HEADERS = ("content-type", "location")

Work: TypeAlias = Callable[[AsyncConnection], Awaitable[Response]]
"""The effect of a request in a transaction, and its answer."""


def parse(values: list[str]) -> str | None:
    """The key that a request names: quoted as the draft has it, or bare as most clients send it; both are the same.

    Args:
        values: of all headers of that name.

    Raises:
        Problem: 400, it is not one key of 1 to 255 printable ASCII characters.
    """
    if not values:
        return None
    found = None
    if len(values) == 1 and (value := values[0].strip()):
        if quoted := _QUOTED.fullmatch(value):
            found = re.sub(r"\\(.)", r"\1", quoted[1])
        elif _BARE.fullmatch(value):
            found = value
    if not found or len(found) > MAX_CHARACTERS:
        detail = f"{HEADER} is one key of 1 to {MAX_CHARACTERS} printable ASCII characters"
        raise Problem(400, "idempotency-key-invalid", detail)
    return found


@dataclass(frozen=True, slots=True)
class Once:
    """A POST request with the key that it names, if it does.

    Attributes:
        target: method, path and query: a key belongs to one of them.
    """

    services: Services
    tenant_id: str
    key: str | None
    target: str

    def answered(self, payload: str) -> Script[Response | None]:
        """What this request was answered before; for those who prepare something before `do`.

        Raises:
            Problem: 422, the key was used with another payload.
        """
        if self.key is None:
            return None
        found = yield from answers.find(self.tenant_id, self.key)
        return _again(found, self._fingerprint(payload)) if found is not None else None

    async def do(self, payload: str, work: Work, *, run_id: UUID | None = None) -> Response:
        """Have the effect, unless it was there before.

        The effect and the answer are in one transaction, which holds the key: killed anywhere, neither took place, and
        the next request with the key is the first.

        Args:
            payload: what identifies it, computed from the parsed request: a repeat has another multipart boundary.
            work: may raise a `Problem`; what it has written then is rolled back.
            run_id: of the run that its answer shows.

        Raises:
            Problem: 409, the first request with this key is still at work; 422, its payload was another.
        """
        if self.key is None:
            async with self.services.pool.connection() as connection:
                return await work(connection)
        fingerprint = self._fingerprint(payload)
        async with self.services.pool.connection() as connection:
            if not await arun(connection, answers.hold(self.tenant_id, self.key, seconds=HUNG_SECONDS)):
                detail = f"the first request with this {HEADER} is still at work; send it again"
                raise Problem(409, "idempotency-key-in-use", detail, headers={"Retry-After": "1"})
            if (found := await arun(connection, answers.find(self.tenant_id, self.key))) is not None:
                return _again(found, fingerprint)
            response, bug = await _executed(connection, work)
            kept = {name: value for name in _KEPT_HEADERS if (value := response.headers.get(name)) is not None}
            answer = Answer(fingerprint, response.status_code, kept, bytes(response.body), run_id)
            await arun(connection, answers.keep(self.tenant_id, self.key, answer))
        if bug is not None:
            raise bug  # to be logged and answered as any other; its repeats are answered the same
        return response

    def _fingerprint(self, payload: str) -> bytes:
        return hashlib.sha256(f"{self.target}\n{payload}".encode(errors="backslashreplace")).digest()


async def _once(
    request: Request,
    tenant: Tenant,
    services: WithServices,
    idempotency_key: Annotated[
        str | None,
        Header(alias=HEADER, description="Any text of your own, new for each request; a repeat has the answer again"),
    ] = None,
) -> Once:
    del idempotency_key  # described here; one that comes twice is seen only below
    target = f"{request.method} {request.url.path}?{request.url.query}"
    return Once(services, tenant, parse(request.headers.getlist(HEADER)), target)


MayRepeat = Annotated[Once, Depends(_once)]
"""A request that takes an `Idempotency-Key`."""


def needed(once: Once) -> None:
    """Refuse a request that would have its effect again each time it is sent, and names no key.

    Raises:
        Problem: 400.
    """
    if once.key is None:
        raise Problem(400, "idempotency-key-needed", f"send the header {HEADER}: sent twice, this would be done twice")


def answer_of(model: BaseModel, status: int, **headers: str) -> Response:
    """An answer as the framework would make it, with its bytes at hand."""
    return Response(model.model_dump_json(), status, headers, "application/json")


async def _executed(connection: AsyncConnection, work: Work) -> tuple[Response, Exception | None]:
    """The answer to be kept, of an effect that was had or rolled back; and the error that nobody foresaw.

    Raises:
        Problem, psycopg.OperationalError: nothing is to be kept; the same request is to be sent again.
    """
    try:
        async with connection.transaction():
            return await work(connection), None
    except Problem as problem:
        if "Retry-After" in problem.headers:
            raise
        return problem.response(), None
    except psycopg.OperationalError:
        raise
    except Exception as error:
        return internal_error(), error


def _again(found: Answer, fingerprint: bytes) -> Response:
    if found.fingerprint != fingerprint:
        raise Problem(422, "idempotency-key-reused", f"this {HEADER} was used for another request; take a new one")
    return Response(found.body, found.status, {**found.headers, REPLAYED: "true"})
