"""What handlers raise, and the class that each becomes."""

import errno
import socket
from datetime import UTC, datetime

import httpx
import obstore
import psycopg
import pytest
from confluent_kafka import KafkaError, KafkaException
from pydantic import BaseModel, ValidationError

from offsetzero.errors import DecodeError, InvalidEvent, PublishError, UnreadableEvent
from offsetzero.retry.classify import classify
from offsetzero.retry.failures import FailureClass, Permanent, Throttled
from support import ManualClock


class Model(BaseModel):
    number: int


def invalid() -> ValidationError:
    with pytest.raises(ValidationError) as caught:
        Model.model_validate({"number": "x"})
    return caught.value


def status(code: int, **headers: str) -> httpx.HTTPStatusError:
    request = httpx.Request("POST", "http://127.0.0.1/")
    response = httpx.Response(code, request=request, headers={k.replace("_", "-"): v for k, v in headers.items()})
    return httpx.HTTPStatusError("no", request=request, response=response)


@pytest.mark.parametrize(
    ("error", "expected"),
    [
        (httpx.ConnectError("no"), FailureClass.TRANSIENT),
        (httpx.ReadTimeout("slow"), FailureClass.TRANSIENT),
        (ConnectionResetError(), FailureClass.TRANSIENT),
        (TimeoutError(), FailureClass.TRANSIENT),
        *[(status(code), FailureClass.TRANSIENT) for code in (408, 500, 502, 503, 504)],
        (status(429), FailureClass.THROTTLED),
        *[(status(code), FailureClass.PROVIDER_DOWN) for code in (401, 403)],
        *[(status(code), FailureClass.PERMANENT) for code in (400, 404, 413, 422)],
        (psycopg.errors.DeadlockDetected(), FailureClass.TRANSIENT),
        (psycopg.OperationalError(), FailureClass.TRANSIENT),
        (psycopg.errors.IdleInTransactionSessionTimeout(), FailureClass.TRANSIENT),
        (psycopg.errors.UniqueViolation(), FailureClass.BUG),
        (psycopg.errors.SyntaxError(), FailureClass.BUG),
        (KafkaException(KafkaError(KafkaError._MSG_TIMED_OUT, retriable=True)), FailureClass.TRANSIENT),
        (KafkaException(KafkaError(KafkaError.MSG_SIZE_TOO_LARGE)), FailureClass.BUG),
        (PublishError("no leader", code="NOT_LEADER", retriable=True), FailureClass.TRANSIENT),
        (PublishError("too large", code="MSG_SIZE_TOO_LARGE"), FailureClass.BUG),
        (invalid(), FailureClass.PERMANENT),
        (DecodeError("raised by a handler: the record was fine"), FailureClass.BUG),
        (UnreadableEvent("raised by a look at the handler's own event"), FailureClass.POISON),
        (InvalidEvent("raised by a handler: it published nonsense"), FailureClass.BUG),
        (socket.gaierror(-2, "no such host"), FailureClass.TRANSIENT),
        (OSError(errno.EHOSTUNREACH, "no route"), FailureClass.TRANSIENT),
        (OSError(errno.ENOENT, "no such file"), FailureClass.BUG),
        (obstore.exceptions.GenericError("503 from the store"), FailureClass.TRANSIENT),
        (ExceptionGroup("two", [TimeoutError(), ConnectionResetError()]), FailureClass.TRANSIENT),
        (ExceptionGroup("two", [TimeoutError(), KeyError("x")]), FailureClass.BUG),
        (psycopg.errors.ProgramLimitExceeded(), FailureClass.BUG),
        (ZeroDivisionError(), FailureClass.BUG),
        (KeyError("x"), FailureClass.BUG),
    ],
    ids=lambda value: repr(value)[:60],
)
def test_each_error_has_one_class(error: Exception, expected: FailureClass) -> None:
    failure = classify(error)
    assert failure.failure_class is expected
    assert failure.__cause__ is error
    assert failure.reason


def test_a_failure_stays_itself() -> None:
    failure = Permanent("password-needed")
    assert classify(failure) is failure


@pytest.mark.parametrize(
    ("value", "seconds"),
    [
        ("7", 7),
        ("1.5", 1.5),
        ("-3", None),
        ("Wed, 01 Jan 2025 00:00:30 GMT", 30),
        ("soon", None),
        ("inf", None),
        ("nan", None),
        ("1e18", None),
        ("999999999", 86400),
        ("Mon, 01 Jan 99999999999999999 00:00:00 GMT", None),
    ],
)
def test_retry_after_in_seconds_or_as_a_date(value: str, seconds: float | None) -> None:
    clock = ManualClock(datetime(2025, 1, 1, tzinfo=UTC))
    assert classify(status(429, retry_after=value), clock).retry_after == seconds
    assert classify(status(503, retry_after=value), clock).retry_after == seconds


def test_users_see_a_sentence_and_operators_the_text() -> None:
    failure = classify(ConnectionRefusedError("db-internal.example:5432 refused user app"))
    assert "db-internal" not in failure.detail
    assert "db-internal" in failure.internal


def test_a_group_of_failures_waits_as_long_as_the_longest_asks() -> None:
    asked = [Throttled("throttled", retry_after=5), Throttled("throttled"), Throttled("throttled", retry_after=60)]
    assert classify(ExceptionGroup("three", asked)).retry_after == 60
