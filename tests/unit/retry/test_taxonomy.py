"""The failure table of the design, row by row: what is raised, what it is, where it goes, when it is a dead letter."""

import random
import struct
from io import BytesIO
from typing import Any

import fastavro
import httpx
import psycopg
import pytest
from confluent_kafka import KafkaError, KafkaException
from pydantic import TypeAdapter, ValidationError

from offsetzero import Cancelled, DeadLetter, Discard, Permanent, Poison, ProviderDown, Retry, Throttled, Transient
from offsetzero.errors import UnreadableEvent
from offsetzero.retry import failures
from offsetzero.retry.classify import classify, of_status
from offsetzero.retry.failures import Bug, CrashLoop, DeadLettered, Failure, FailureClass
from offsetzero.retry.policy import Again, Decision, End, RetryPolicy, Tier, ToDeadLetters, ToTier
from offsetzero.store.processed import Outcome

NOW = 1_700_000_000_000
POLICY = RetryPolicy([Tier("retry-1m", 60), Tier("retry-10m", 600)])


def raised(function: Any, *arguments: Any) -> Exception:
    with pytest.raises(Exception) as caught:  # noqa: PT011 - whatever it is
        function(*arguments)
    return caught.value


def status(code: int) -> httpx.HTTPStatusError:
    request = httpx.Request("POST", "http://127.0.0.1/")
    return httpx.HTTPStatusError("no", request=request, response=httpx.Response(code, request=request))


SCHEMA = fastavro.parse_schema({"type": "record", "name": "r", "fields": [{"name": "x", "type": "string"}]})
INVALID = raised(TypeAdapter(int).validate_python, "x")
CUT_SHORT = raised(fastavro.schemaless_reader, BytesIO(b"\x08ab"), SCHEMA, None)
UNFIT = raised(fastavro.validate, {"x": 3}, SCHEMA)
UNKNOWN = raised(fastavro.parse_schema, {"type": "odd"})

TABLE: list[tuple[FailureClass, list[BaseException], list[str], DeadLettered]] = [
    (
        FailureClass.TRANSIENT,
        [
            Transient("x"),
            Retry(),
            TimeoutError(),
            ConnectionResetError(),
            httpx.ReadTimeout("slow"),
            *map(status, (500, 502, 503, 504)),
            psycopg.errors.DeadlockDetected(),
            KafkaException(KafkaError(KafkaError._MSG_TIMED_OUT)),
        ],
        ["retry-1m", "retry-10m", "dlq"],
        DeadLettered.LAST,
    ),
    (FailureClass.THROTTLED, [Throttled("x"), status(429)], ["retry-1m", "retry-10m", "dlq"], DeadLettered.LAST),
    (FailureClass.PROVIDER_DOWN, [ProviderDown("x"), status(401)], ["waits"] * 3, DeadLettered.NEVER),
    (
        FailureClass.PERMANENT,
        [Permanent("password-needed"), *map(status, (400, 404, 422)), INVALID, UNFIT],
        ["failed"] * 3,
        DeadLettered.NEVER,
    ),
    (
        FailureClass.POISON,
        [Poison("x"), DeadLetter("x"), UnreadableEvent("x"), CUT_SHORT, UNKNOWN],
        ["dlq"] * 3,
        DeadLettered.FIRST,
    ),
    (FailureClass.BUG, [Bug("x"), KeyError("x"), ZeroDivisionError()], ["retry-1m", "dlq", "dlq"], DeadLettered.SECOND),
    (FailureClass.CRASH_LOOP, [CrashLoop("crash-loop")], ["dlq"] * 3, DeadLettered.CRASHES),
    (FailureClass.CANCELLED, [Cancelled()], ["cancelled"] * 3, DeadLettered.NEVER),
    (FailureClass.DISCARDED, [Discard("not ours")], ["discarded"] * 3, DeadLettered.NEVER),
]


@pytest.mark.parametrize(("kind", "errors", "path", "dead_letter"), TABLE, ids=[row[0] for row in TABLE])
def test_each_row_of_the_table(
    kind: FailureClass, errors: list[BaseException], path: list[str], dead_letter: DeadLettered
) -> None:
    for error in errors:
        failure = classify(error)
        assert failure.failure_class is kind, repr(error)
        assert failure.dead_letter is dead_letter
        assert [where(failure, attempt) for attempt in (1, 2, 3)] == path, repr(error)
        assert ("dlq" in path) is (dead_letter is not DeadLettered.NEVER)


def where(failure: Failure, attempt: int) -> str:
    """What follows when all attempts fail in the same way."""
    bug_before = attempt > 1 and failure.failure_class is FailureClass.BUG
    decision: Decision = POLICY.decide(failure, attempt, NOW, random.Random(1), bug_before=bug_before)
    match decision:
        case ToTier(tier, due_ms, again):
            assert due_ms >= NOW + tier.delay * 1000
            if again == attempt:
                return "waits"
            assert again == attempt + 1
            return tier.name
        case ToDeadLetters():
            return "dlq"
        case End(outcome):
            return outcome.value
        case Again():
            return "again"


def test_the_table_has_a_row_for_every_class_of_the_taxonomy() -> None:
    made = {
        one.failure_class
        for one in vars(failures).values()
        if isinstance(one, type) and issubclass(one, Failure) and one is not Failure
    }
    assert made == set(FailureClass) == {row[0] for row in TABLE}


def test_what_ends_without_a_dead_letter_ends_in_an_outcome() -> None:
    ends = [POLICY.decide(one, 1, NOW, random.Random(1)) for one in (Permanent("x"), Cancelled(), Discard("x"))]
    assert ends == [End(Outcome.FAILED), End(Outcome.CANCELLED), End(Outcome.DISCARDED)]


def test_a_handler_says_when_its_next_try_is_of_use() -> None:
    asked = Retry("warming-up", after=90)
    assert (asked.reason, asked.retry_after) == ("warming-up", 90)
    decision = POLICY.decide(asked, 1, NOW, random.Random(1))
    assert isinstance(decision, ToTier)
    assert decision.tier.name == "retry-10m"


@pytest.mark.parametrize("error", [struct.error("x"), MemoryError(), EOFError()])
def test_only_what_an_avro_reader_raises_is_bytes_that_cannot_be_read(error: Exception) -> None:
    assert classify(error).failure_class is FailureClass.BUG


def test_a_status_of_the_provider_is_named_in_the_reason() -> None:
    assert [of_status(code).reason for code in (400, 401, 429, 503)] == [
        "provider-400",
        "provider-401",
        "throttled",
        "provider-503",
    ]


def test_validation_is_that_of_pydantic() -> None:
    assert isinstance(INVALID, ValidationError)
