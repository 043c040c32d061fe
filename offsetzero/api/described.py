"""What the OpenAPI document says besides the types: which errors an operation has, as problems, with examples."""

from collections.abc import Mapping, Sequence
from http import HTTPStatus
from typing import Any

from fastapi import FastAPI
from pydantic import BaseModel, ConfigDict, Field

from offsetzero.api import models, schedule_models, webhook_models

MEDIA_TYPE = "application/problem+json"
_MODELS = (models, webhook_models, schedule_models)
Responses = dict[int | str, dict[str, Any]]

# Every code with its status and a detail as it may be. docs/api.md lists the same; a test compares.
CODES: dict[str, tuple[int, str]] = {
    "idempotency-key-invalid": (400, "Idempotency-Key is one key of 1 to 255 printable ASCII characters"),
    "idempotency-key-needed": (400, "send the header Idempotency-Key: sent twice, this would be done twice"),
    "incomplete-body": (400, "the connection ended before the request was complete"),
    "malformed-body": (400, "the body is not JSON: Expecting value at character 0"),
    "key-needed": (401, "send the API key of your tenant as `Authorization: Bearer ozk_…`"),
    "key-unknown": (401, "this API key is not known or was revoked"),
    "read-only-key": (403, "this key may only read; send one with the role 'writer'"),
    "not-found": (404, "there is no such document"),
    "method-not-allowed": (405, "this path has GET, POST"),
    "conflict": (409, "the same file is being deleted; send it again"),
    "idempotency-key-in-use": (409, "the first request with this Idempotency-Key is still at work; send it again"),
    "name-taken": (409, "there is a schedule nightly already"),
    "run-ended": (409, "the run has succeeded; it cannot be cancelled any more"),
    "too-many-schedules": (409, "there are 50 schedules already; delete one first"),
    "too-many-webhooks": (409, "there are 20 webhooks already; delete one first"),
    "too-large": (413, "the file is larger than 52428800 bytes"),
    "not-json": (415, "send JSON, with the header Content-Type: application/json"),
    "not-multipart": (415, "send the file as multipart/form-data in the field 'file', or its URI as JSON"),
    "unsupported-type": (415, "'picture.png' is 'image/png'; accepted are PDF (.pdf), …"),
    "empty-file": (422, "'report.pdf' is empty: there is nothing to work on"),
    "empty-query": (422, "q is empty: name at least one word"),
    "idempotency-key-reused": (422, "this Idempotency-Key was used for another request; take a new one"),
    "invalid-request": (422, "query.limit: Input should be less than or equal to 200"),
    "object-missing": (422, "there is no such object; yours are below s3://bucket/incoming/acme/"),
    "no-file": (422, "the request has no file in the field 'file'"),
    "schedule-refused": (422, "zone 'Berlin': no such time zone; give a name such as Europe/Berlin"),
    "several-files": (422, "the request has more than one file in the field 'file'"),
    "unknown-event-type": (422, "no such event type: run.odd; there are run.succeeded, run.failed, run.cancelled"),
    "url-refused": (422, "the URL must start with https:// and name a host"),
    "too-many-requests": (429, "the tenant sends more than 500 requests a second"),
    "too-many-streams": (429, "the tenant has 2000 streams open already; close some first"),
    "internal-error": (500, "the request failed; the error is in the API's log, with this x-request-id"),
    "catalogue-unavailable": (503, "the group catalogue has never run: `offsetzero groups run catalogue` starts it"),
    "database-unavailable": (503, "the database does not answer; try again"),
    "overloaded": (503, "more requests wait than are answered in time; try again"),
    "not-ready": (503, "the database cannot be used: OperationalError"),
    "usage-unavailable": (503, "the group usage does not answer; it may be starting: try again"),
    "object-store-unavailable": (503, "the document could not be stored"),
}
_EVERYWHERE = (
    "key-needed",
    "key-unknown",
    "invalid-request",
    "too-many-requests",
    "internal-error",
    "database-unavailable",
    "overloaded",
)


class Problem(BaseModel):
    """An error (RFC 9457). Programs look at `type`, people read `detail`; some have further members."""

    model_config = ConfigDict(extra="allow")

    type: str = Field(description="`urn:offsetzero:problem:` and the code")
    title: str = Field(description="The phrase of the status")
    status: int
    detail: str = Field(description="What is wrong and what to do about it")


def errors(*codes: str) -> Responses:
    """The `responses` of a route that needs a key and may answer with these codes besides."""
    by_status: dict[int, list[str]] = {}
    for code in (*_EVERYWHERE, *codes):
        by_status.setdefault(CODES[code][0], []).append(code)
    return _described(by_status)


def _described(by_status: Mapping[int, Sequence[str]]) -> Responses:
    return {
        status: {
            "description": ", ".join(f"`{code}`" for code in found),
            "content": {
                MEDIA_TYPE: {
                    "schema": {"$ref": "#/components/schemas/Problem"},
                    "examples": {code: {"value": _example(code)} for code in found},
                }
            },
        }
        for status, found in sorted(by_status.items())
    }


def _example(code: str) -> dict[str, Any]:
    status, detail = CODES[code]
    title = HTTPStatus(status).phrase
    return {"type": f"urn:offsetzero:problem:{code}", "title": title, "status": status, "detail": detail}


class DescribedApi(FastAPI):
    """An app whose OpenAPI document explains the problems that `errors` refers to."""

    def openapi(self) -> dict[str, Any]:
        document = super().openapi()
        schemas = document["components"]["schemas"]
        schemas["Problem"] = Problem.model_json_schema()
        refused = {str(status): said for status, said in _described({403: ["read-only-key"]}).items()}
        for item in document["paths"].values():
            for method in item.keys() - {"get"}:
                item[method]["responses"] |= refused
        for name, schema in schemas.items():
            if "examples" in schema:  # the framework leaves out what is null, and clients must see that it may be
                model = next(found for one in _MODELS if (found := getattr(one, name, None)) is not None)
                schema["examples"] = model.model_config["json_schema_extra"]["examples"]
        return document
