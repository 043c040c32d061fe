"""Makes one of the taxonomy's classes of whatever a handler raised."""

import sys
from datetime import UTC
from email.utils import parsedate_to_datetime
from typing import Any

import confluent_kafka
import psycopg
from pydantic import ValidationError

from offsetzero.clock import SYSTEM, Clock
from offsetzero.errors import DecodeError, InvalidEvent, PublishError
from offsetzero.retry.failures import Bug, Failure, Permanent, Poison, ProviderDown, Throttled, Transient

TRANSIENT_STATUSES = frozenset({408, 425, 500, 502, 503, 504})
_DETAIL = 500  # characters of a foreign message that are worth keeping


def classify(error: BaseException, clock: Clock = SYSTEM) -> Failure:
    """The failure that an exception stands for.

    Args:
        error: what the handler raised.
        clock: for a `Retry-After` that names a date.

    Returns:
        The error itself when it is a `Failure` already, otherwise one that has it as its cause.
    """
    if isinstance(error, Failure):
        return error
    failure = _http(error, clock) or _other(error)
    failure.__cause__ = error
    return failure


def _other(error: BaseException) -> Failure:
    said = f"{type(error).__name__}: {error}"[:_DETAIL]
    if isinstance(error, DecodeError | InvalidEvent):
        return Poison("unreadable", said)
    if isinstance(error, ValidationError):
        return Permanent("invalid", f"{error.error_count()} invalid fields of {error.title}")
    if isinstance(error, psycopg.OperationalError):  # deadlocks and serialization failures are among them
        return Transient("database", said)
    if isinstance(error, confluent_kafka.KafkaException):
        return Transient("kafka", said) if error.args and error.args[0].retriable() else Bug("kafka", said)
    if isinstance(error, PublishError):
        return Transient("kafka", said) if error.retriable else Bug("kafka", said)
    if isinstance(error, ConnectionError | TimeoutError):
        return Transient("connection", said)
    return Bug(type(error).__name__, said)


def _http(error: BaseException, clock: Clock) -> Failure | None:
    httpx = sys.modules.get("httpx")  # an httpx error can only come from an imported httpx
    if httpx is None:
        return None
    if isinstance(error, httpx.HTTPStatusError):
        return of_status(error.response.status_code, error.response.headers.get("retry-after"), clock)
    if isinstance(error, httpx.TransportError):
        return Transient("connection", f"{type(error).__name__}: {error}"[:_DETAIL])
    return None


def of_status(status: int, retry_after: str | None = None, clock: Clock = SYSTEM) -> Failure:
    """The failure that an HTTP status of a provider stands for.

    Args:
        status: the status code, 300 or above.
        retry_after: the header `Retry-After` as it came, seconds or an HTTP date (RFC 9110, 10.2.3).
        clock: for a date.
    """
    detail = f"the provider answered {status}"
    wait = _seconds(retry_after, clock)
    if status == 429:
        return Throttled("throttled", detail, retry_after=wait)
    if status in TRANSIENT_STATUSES:
        return Transient(f"provider-{status}", detail, retry_after=wait)
    if status in (401, 403):
        return ProviderDown(f"provider-{status}", detail)
    return Permanent(f"provider-{status}", detail)


def _seconds(value: Any, clock: Clock) -> float | None:
    if not value:
        return None
    try:
        return max(0.0, float(value))
    except ValueError:
        pass
    try:
        moment = parsedate_to_datetime(value)
    except ValueError:
        return None
    if moment.tzinfo is None:
        moment = moment.replace(tzinfo=UTC)
    return max(0.0, (moment - clock.now()).total_seconds())
