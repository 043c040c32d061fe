"""Makes one of the taxonomy's classes of whatever a handler raised."""

import errno
import re
import socket
import sys
from datetime import UTC
from email.utils import parsedate_to_datetime

import confluent_kafka
import psycopg
from pydantic import ValidationError

from offsetzero.clock import SYSTEM, Clock
from offsetzero.errors import PublishError, UnreadableEvent
from offsetzero.retry.failures import Bug, Failure, FailureClass, Permanent, Poison, ProviderDown, Throttled, Transient

TRANSIENT_STATUSES = frozenset({408, 425, 500, 502, 503, 504})
_SECONDS = re.compile(r"\d{1,9}(\.\d{1,3})?", re.ASCII)
_LIMITS = "54"  # SQLSTATE class of program limits: too large for an index, too complex; no later try helps
_IDLE_TIMEOUT = "25P03"  # the server ended a transaction in which the handler was busy with something else
_NETWORK = frozenset({errno.EHOSTUNREACH, errno.ENETUNREACH, errno.ENETDOWN, errno.EHOSTDOWN, errno.ETIMEDOUT})
_SEVERITY = (
    FailureClass.TRANSIENT,
    FailureClass.THROTTLED,
    FailureClass.PROVIDER_DOWN,
    FailureClass.PERMANENT,
    FailureClass.POISON,
    FailureClass.BUG,
)


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
    said = _said(error)
    if isinstance(error, BaseExceptionGroup):
        return _worst(error, said)
    if isinstance(error, UnreadableEvent):  # found when the handler looked; other bytes it decodes are its own affair
        return Poison("unreadable", said)
    if isinstance(error, ValidationError):
        return Permanent("invalid", f"{error.error_count()} invalid fields of {error.title}")
    if isinstance(error, psycopg.Error) and _is_passing(error):
        return Transient("database", "the database could not do it now", internal=said)
    if isinstance(error, confluent_kafka.KafkaException):
        retriable = bool(error.args) and error.args[0].retriable()
    elif isinstance(error, PublishError):
        retriable = error.retriable
    else:
        retriable = _is_network(error)
    if retriable:
        return Transient("connection", "another system could not be reached", internal=said)
    return Bug(type(error).__name__, "an unexpected error; operators see it in the log", internal=said)


def _worst(error: BaseExceptionGroup[BaseException], said: str) -> Failure:
    """A group of failures is as bad as its worst member."""
    members = [classify(member) for member in error.exceptions]
    worst = max(members, key=lambda member: _SEVERITY.index(member.failure_class))
    waits = [member.retry_after for member in members if member.retry_after is not None]
    return type(worst)(worst.reason, worst.detail, retry_after=max(waits, default=None), internal=said)


def _is_passing(error: psycopg.Error) -> bool:
    """Deadlocks, time-outs, lost connections; not what no later try helps against."""
    if (error.sqlstate or "").startswith(_LIMITS):
        return False
    return isinstance(error, psycopg.OperationalError) or error.sqlstate == _IDLE_TIMEOUT


def _is_network(error: BaseException) -> bool:
    if isinstance(error, ConnectionError | TimeoutError | socket.gaierror):
        return True
    if isinstance(error, OSError) and error.errno in _NETWORK:
        return True
    # The object store's client raises GenericError for whatever its store or the way to it did.
    return type(error).__module__.startswith("obstore") and type(error).__name__ == "GenericError"


def _said(error: BaseException) -> str:
    try:
        return f"{type(error).__name__}: {error}"
    except Exception:  # an exception of somebody's own that cannot even be shown
        return f"{type(error).__name__} (its text cannot be shown)"


def _http(error: BaseException, clock: Clock) -> Failure | None:
    httpx = sys.modules.get("httpx")  # an httpx error can only come from an imported httpx
    if httpx is None:
        return None
    if isinstance(error, httpx.HTTPStatusError):
        return of_status(error.response.status_code, error.response.headers.get("retry-after"), clock)
    if isinstance(error, httpx.TransportError):
        return Transient("connection", "the provider could not be reached", internal=_said(error))
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


def _seconds(value: str | None, clock: Clock) -> float | None:
    """Seconds of a `Retry-After`; None for what is neither a number of seconds nor a date."""
    if not value:
        return None
    if _SECONDS.fullmatch(value.strip()):
        return float(value)
    try:
        moment = parsedate_to_datetime(value)
        if moment.tzinfo is None:
            moment = moment.replace(tzinfo=UTC)
        return max(0.0, (moment - clock.now()).total_seconds())
    except (ValueError, OverflowError):
        return None
