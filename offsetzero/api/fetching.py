"""Receive a document by its URI: a service has put it into the object store by itself, where its tenant may.

It is fetched, counted and hashed as an upload is, and kept where uploads are: what the service does with its own object
afterwards changes nothing.
"""

import hashlib
import tempfile
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import IO, Annotated, Any

import obstore.exceptions
from fastapi import Request
from pydantic import BaseModel, ConfigDict, Field, ValidationError

from offsetzero import logs
from offsetzero.api.problems import Problem
from offsetzero.api.services import Services
from offsetzero.api.uploads import IN_MEMORY, Upload, content_type_of, empty, file_name, too_large
from offsetzero.store.objects import ObjectMissing, ObjectTooLarge

_MAX_BODY = 64 * 1024

log = logs.get(__name__)


class ObjectRequest(BaseModel):
    """An object of the store below `incoming/` and the tenant's id. Its name is the last part of the URI by default."""

    model_config = ConfigDict(extra="forbid")

    uri: Annotated[str, Field(min_length=1, max_length=2048, examples=["s3://bucket/incoming/acme/policy.pdf"])]
    name: Annotated[str, Field(max_length=1024)] = ""
    content_type: Annotated[str, Field(max_length=200)] = ""


def is_named(request: Request) -> bool:
    """Whether a request brings the URI of a document, not the document."""
    return request.headers.get("content-type", "").partition(";")[0].strip().lower() == "application/json"


async def named(request: Request) -> ObjectRequest:
    """What a request names.

    Raises:
        Problem: 400, 413, 422.
    """
    body = bytearray()
    async for chunk in request.stream():
        body += chunk
        if len(body) > _MAX_BODY:
            raise Problem(413, "too-large", f"the body is larger than {_MAX_BODY} bytes")
    try:
        return ObjectRequest.model_validate_json(bytes(body))
    except ValidationError as error:
        said = error.errors()
        if any(one["type"] == "json_invalid" for one in said):
            raise Problem(400, "malformed-body", f"the body is not JSON: {said[0]['ctx']['error']}") from error
        detail = "; ".join(f"body.{'.'.join(map(str, one['loc']))}: {one['msg']}" for one in said)
        raise Problem(422, "invalid-request", detail) from error


@asynccontextmanager
async def fetch(services: Services, tenant_id: str, named: ObjectRequest) -> AsyncIterator[Upload]:
    """The object that a request names.

    Raises:
        Problem: 413 over the limit; 415 for a type that is not taken; 422 when there is no such object of the tenant,
            and for an empty one; 503, the object store does not give it.
    """
    limit = services.settings.api.max_upload_bytes
    name = file_name((named.name or named.uri).encode(errors="replace"))
    kind = content_type_of(named.content_type.encode(errors="replace"), name)
    with tempfile.SpooledTemporaryFile(IN_MEMORY) as file:
        hashed = _Hashed(file)
        try:
            if not services.objects.key(named.uri).startswith(f"incoming/{tenant_id}/"):
                raise ObjectMissing(named.uri)
            await services.objects.fetch(named.uri, hashed, limit)
        except ObjectMissing as error:
            detail = f"there is no such object; yours are below {services.objects.uri(f'incoming/{tenant_id}/')}"
            raise Problem(422, "object-missing", detail) from error
        except ObjectTooLarge as error:
            raise too_large(limit) from error
        except (obstore.exceptions.BaseError, OSError) as error:
            log.error("object not fetched", error=str(error))
            headers = {"Retry-After": "5"}
            raise Problem(
                503, "object-store-unavailable", "the object could not be fetched", headers=headers
            ) from error
        if hashed.size == 0:
            raise empty(name)
        yield Upload(file, name, kind, hashed.size, hashed.digest.hexdigest())


class _Hashed:
    """A file that counts and hashes what is written to it."""

    def __init__(self, file: IO[bytes]) -> None:
        self._file = file
        self.digest = hashlib.sha256()
        self.size = 0

    def write(self, data: Any) -> int:
        self.digest.update(data)
        self.size += len(data)
        return self._file.write(data)
