"""Every error is answered as `application/problem+json` (RFC 9457), also those of the framework."""

import math
from collections.abc import Mapping
from http import HTTPStatus
from typing import Any

import psycopg
import psycopg_pool
from fastapi import FastAPI, Request
from fastapi.exceptions import RequestValidationError
from fastapi.responses import JSONResponse
from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect
from starlette.routing import Match

from offsetzero import logs

_METHODS = ("GET", "HEAD", "POST", "PUT", "PATCH", "DELETE")

log = logs.get(__name__)


class Problem(Exception):
    """An answer other than success.

    Args:
        status: the HTTP status.
        code: a stable lower-case code for programs; the problem's `type` is `urn:offsetzero:problem:<code>`.
        detail: one sentence for people: what is wrong and what to do about it.
        headers: of the answer.
        members: further members of the problem.
    """

    def __init__(
        self, status: int, code: str, detail: str, *, headers: Mapping[str, str] | None = None, **members: Any
    ) -> None:
        super().__init__(detail)
        self.status = status
        self.code = code
        self.detail = detail
        self.headers = dict(headers or {})
        self.members = members

    def response(self) -> JSONResponse:
        """The answer."""
        body = {
            "type": f"urn:offsetzero:problem:{self.code}",
            "title": HTTPStatus(self.status).phrase,
            "status": self.status,
            "detail": self.detail,
            **self.members,
        }
        return JSONResponse(_encodable(body), self.status, self.headers, media_type="application/problem+json")


def _encodable(value: Any) -> Any:
    """The same without lone surrogates: JSON may bring them in, and UTF-8 cannot carry them out."""
    if isinstance(value, str):
        return value.encode(errors="backslashreplace").decode()
    if isinstance(value, Mapping):
        return {name: _encodable(item) for name, item in value.items()}
    return [_encodable(item) for item in value] if isinstance(value, list) else value


def not_found(what: str) -> Problem:
    """The same for what is not there and for what belongs to another tenant."""
    return Problem(404, "not-found", f"there is no such {what}")


def too_many(detail: str, seconds: float) -> Problem:
    """The refusal of a request that comes so many seconds too early."""
    return Problem(429, "too-many-requests", detail, headers={"Retry-After": str(math.ceil(seconds))})


def install(app: FastAPI) -> None:
    """Answer all errors of an app as problems."""
    app.add_exception_handler(Problem, _problem)
    app.add_exception_handler(HTTPException, _framework)
    app.add_exception_handler(RequestValidationError, _invalid)
    app.add_exception_handler(psycopg.OperationalError, _database)
    app.add_exception_handler(ClientDisconnect, _gone)
    app.add_exception_handler(Exception, _bug)


def _problem(_request: Request, error: Exception) -> JSONResponse:
    assert isinstance(error, Problem)  # noqa: S101 - as registered
    return error.response()


def _gone(request: Request, _error: Exception) -> JSONResponse:
    log.info("client went away", method=request.method, path=request.url.path)
    return Problem(400, "incomplete-body", "the connection ended before the body was whole").response()


def _framework(request: Request, error: Exception) -> JSONResponse:
    assert isinstance(error, HTTPException)  # noqa: S101 - as registered
    phrase = HTTPStatus(error.status_code).phrase
    # 400 is how the framework answers bytes that it cannot even try to parse.
    code = {400: "malformed-body", 413: "too-large"}.get(error.status_code) or phrase.lower().replace(" ", "-")
    headers = dict(error.headers or {})
    detail = str(error.detail or phrase)
    if error.status_code == 404:
        detail = "there is nothing at this path; /openapi.json has those that there are"
    elif error.status_code == 405:
        headers["Allow"] = ", ".join(_allowed(request))
        detail = f"this path has {headers['Allow']}"
    return Problem(error.status_code, code, detail, headers=headers).response()


def _allowed(request: Request) -> list[str]:
    """The methods of a path: the framework names those of the first route alone (RFC 9110 wants all)."""
    routes = request.app.router.routes
    scopes = {method: {**request.scope, "method": method} for method in _METHODS}
    return [method for method, scope in scopes.items() if any(r.matches(scope)[0] is Match.FULL for r in routes)]


def _invalid(request: Request, error: Exception) -> JSONResponse:
    assert isinstance(error, RequestValidationError)  # noqa: S101 - as registered
    for item in error.errors():
        if item["type"] == "json_invalid":
            why = f"{item['ctx']['error']} at character {item['loc'][-1]}"
            return Problem(400, "malformed-body", f"the body is not JSON: {why}").response()
        if item["loc"] == ("body",) and item["type"] != "missing" and not _says_json(request):
            return Problem(415, "not-json", "send JSON, with the header Content-Type: application/json").response()
    errors = [{"at": ".".join(str(part) for part in item["loc"]), "detail": item["msg"]} for item in error.errors()]
    detail = "; ".join(f"{item['at']}: {item['detail']}" for item in errors)
    return Problem(422, "invalid-request", detail, errors=errors).response()


def _says_json(request: Request) -> bool:
    kind = request.headers.get("content-type", "").partition(";")[0].strip().lower()
    return kind == "application/json" or kind.endswith("+json")


def _database(request: Request, error: Exception) -> JSONResponse:
    if isinstance(error, psycopg_pool.TooManyRequests):
        log.warning("too much is asked at once", path=request.url.path)
        detail = "more requests wait than are answered in time; try again"
        return Problem(503, "overloaded", detail, headers={"Retry-After": "1"}).response()
    log.error("database unavailable", path=request.url.path, error=str(error))
    headers = {"Retry-After": "5"}
    return Problem(503, "database-unavailable", "the database does not answer; try again", headers=headers).response()


def _bug(request: Request, error: Exception) -> JSONResponse:
    # Without the traceback: the server logs that when the framework raises the error again.
    # The answer is made outside the middleware that gives the others their id.
    request_id = request.scope.get("state", {}).get("request_id", "")
    log.error("request failed", method=request.method, path=request.url.path, error=repr(error), request_id=request_id)
    response = internal_error()
    response.headers["X-Request-ID"] = request_id
    # The server closes the connection when the error is raised again: who sent the next request into it had a reset.
    response.headers["Connection"] = "close"
    return response


def internal_error() -> JSONResponse:
    """The answer to what nobody foresaw."""
    detail = "the request failed; the error is in the API's log, with this x-request-id"
    return Problem(500, "internal-error", detail).response()
