"""Makes one of the taxonomy's classes of whatever a handler raised."""

import copy
import errno
import re
import socket
import sys
import traceback
from collections.abc import Callable, Mapping
from datetime import UTC
from email.utils import parsedate_to_datetime
from types import MappingProxyType
from typing import Any, TypeAlias

import confluent_kafka
import psycopg
from pydantic import ValidationError

from offsetzero import logs
from offsetzero.clock import SYSTEM, Clock
from offsetzero.errors import PublishError, UnreadableEvent
from offsetzero.producers.delivery import PASSING
from offsetzero.retry.failures import Bug, Failure, FailureClass, Permanent, Poison, ProviderDown, Throttled, Transient

Rule: TypeAlias = type[Failure] | Callable[[Any], Failure | None]
"""A class of the taxonomy, or a function from the exception to a failure, or to None when it does not know."""
Rules: TypeAlias = Mapping[type[BaseException], Rule]
NO_RULES: Rules = MappingProxyType({})

TRANSIENT_STATUSES = frozenset({408, 425, 500, 502, 503, 504, 529})
_SECONDS = re.compile(r"\d{1,9}(\.\d{1,3})?", re.ASCII)
_LIMITS = "54"  # SQLSTATE class of program limits: too large for an index, too complex; no later try helps
_IDLE_TIMEOUT = "25P03"  # the server ended a transaction in which the handler was busy with something else
_NETWORK = frozenset({errno.EHOSTUNREACH, errno.ENETUNREACH, errno.ENETDOWN, errno.EHOSTDOWN, errno.ETIMEDOUT})
_OF_BYTES = (ArithmeticError, EOFError, LookupError, TypeError, ValueError)
_WORST = list(FailureClass).index

log = logs.get(__name__)


def classify(error: BaseException, clock: Clock = SYSTEM, rules: Rules = NO_RULES) -> Failure:
    """The failure that an exception stands for.

    Args:
        error: what the handler raised.
        clock: for a `Retry-After` that names a date.
        rules: by class of exception; they come before what is built in, that of the nearest class first. One that
            raises, or returns something else than a failure, is passed over, and the log says so.

    Returns:
        The error itself when it is a `Failure` already, otherwise one that has it as its cause.
    """
    if isinstance(error, Failure):
        return error
    failure = _by_rules(error, rules) or _http(error, clock) or _other(error, clock, rules)
    if failure is not error.__cause__:
        failure.__cause__ = error
    return failure


def _by_rules(error: BaseException, rules: Rules) -> Failure | None:
    for kind in type(error).__mro__ if rules else ():
        if (rule := rules.get(kind)) is None:
            continue
        try:
            made = _apply(rule, error)
        except BaseException as raised:
            log.error("rule failed", rule=_name(rule), error=_name(type(error)), exc_info=raised)
            continue
        if made is not None:
            return made
    return None


def _apply(rule: Rule, error: BaseException) -> Failure | None:
    if isinstance(rule, type):
        made: Failure = rule(type(error).__name__)
        made.internal = Failure(made.reason, internal=_said(error)).internal
        return made
    found: Failure | None = rule(error)
    if found is not None and not isinstance(found, Failure):
        raise TypeError(f"a rule returns a failure or None, not {type(found).__name__}")
    return found


def _name(named: Any) -> str:
    return getattr(named, "__qualname__", None) or type(named).__qualname__


def _other(error: BaseException, clock: Clock, rules: Rules) -> Failure:
    said = _said(error)
    if isinstance(error, BaseExceptionGroup):
        return _worst(error, said, clock, rules)
    if isinstance(error, UnreadableEvent):  # found when the handler looked; other bytes it decodes are its own affair
        return Poison("unreadable", said)
    if isinstance(error, ValidationError):
        return Permanent("invalid", f"{error.error_count()} invalid fields of {error.title}")
    if (found := _avro(error, said)) is not None:
        return found
    if isinstance(error, psycopg.Error) and _is_passing(error):
        return Transient("database", "the database could not do it now", internal=said)
    if _is_retriable(error):
        return Transient("connection", "another system could not be reached", internal=said)
    return Bug(type(error).__name__, "an unexpected error; operators see it in the log", internal=said)


def _worst(error: BaseExceptionGroup[BaseException], said: str, clock: Clock, rules: Rules) -> Failure:
    """A group of failures is as bad as its worst member, and waits as long as the longest asks."""
    members = [classify(member, clock, rules) for member in error.exceptions]
    worst = copy.copy(max(members, key=lambda member: _WORST(member.failure_class)))
    worst.retry_after = max((one.retry_after for one in members if one.retry_after is not None), default=None)
    worst.internal = Failure(worst.reason, internal=said).internal
    return worst


def _avro(error: BaseException, said: str) -> Failure | None:
    """fastavro: bytes and schemas that do not belong together, or a value that its schema refuses."""
    home = type(error).__module__
    if home.startswith("fastavro") and type(error).__name__ == "ValidationError":
        return Permanent("invalid", "a value that its Avro schema refuses", internal=said)
    # Of bytes that end too early, or are none, its reader raises exceptions of Python's own.
    is_its = isinstance(error, _OF_BYTES) and "fastavro/_read" in _innermost(error)
    if is_its or home.startswith("fastavro"):
        return Poison("unreadable", "bytes that their Avro schema does not explain", internal=said)
    return None


def _innermost(error: BaseException) -> str:
    """The file in which it was raised."""
    name = ""
    for frame, _ in traceback.walk_tb(error.__traceback__):
        name = frame.f_code.co_filename
    return name


def _is_passing(error: psycopg.Error) -> bool:
    """Deadlocks, time-outs, lost connections; not what no later try helps against."""
    if (error.sqlstate or "").startswith(_LIMITS):
        return False
    return isinstance(error, psycopg.OperationalError) or error.sqlstate == _IDLE_TIMEOUT


def _is_retriable(error: BaseException) -> bool:
    if isinstance(error, PublishError):
        return error.retriable
    if isinstance(error, confluent_kafka.KafkaException):
        cause = error.args[0] if error.args else None
        return isinstance(cause, confluent_kafka.KafkaError) and (cause.retriable() or cause.code() in PASSING)
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
    if isinstance(error, httpx.UnsupportedProtocol | httpx.LocalProtocolError):  # the call itself is wrong
        return None
    if isinstance(error, httpx.TransportError):
        return Transient("connection", "the provider could not be reached", internal=_said(error))
    if isinstance(error, httpx.DecodingError):
        return Transient("provider-answer", "the provider's answer cannot be decoded", internal=_said(error))
    if isinstance(error, httpx.TooManyRedirects):
        return Permanent("provider-redirects", "the provider redirects without end", internal=_said(error))
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
