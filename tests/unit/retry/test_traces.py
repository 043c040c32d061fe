"""What records keep of an exception: classes and places, and no word of what it says."""

import socket

import confluent_kafka
import psycopg
import pytest

from offsetzero.errors import PublishError
from offsetzero.retry import headers, traces
from offsetzero.retry.classify import classify
from offsetzero.retry.failures import Failure, Poison
from offsetzero.retry.headers import Hop, Origin

PERSON = "Jane Doe"
HERE = Hop(Origin("id", "documents", 0, 1))


class Own(Exception):
    """As many libraries have."""

    def __str__(self) -> str:
        raise RuntimeError("cannot be shown")


def raised(error: BaseException, before: BaseException | None = None) -> BaseException:
    try:
        if before is not None:
            try:
                raise before
            except BaseException as first:
                raise error from first
        raise error
    except BaseException as caught:
        return caught


def written(failure: Failure) -> str:
    return repr(headers.write([], HERE, failure, "g"))


@pytest.mark.parametrize(
    "error",
    [
        ValueError(f"invalid literal: {PERSON!r}"),
        KeyError(PERSON),
        psycopg.errors.CheckViolation(f"DETAIL: Failing row contains ({PERSON})."),
        psycopg.errors.UniqueViolation(f"DETAIL: Key (name)=({PERSON}) already exists."),
        FileNotFoundError(2, "No such file", f"{PERSON}.pdf"),
        ExceptionGroup(PERSON, [ValueError(PERSON), KeyError(PERSON)]),
        ConnectionResetError(104, "reset", f"{PERSON}.pdf"),
    ],
    ids=lambda error: type(error).__name__,
)
def test_what_a_foreign_exception_says_is_in_no_record(error: BaseException) -> None:
    failure = classify(raised(error, KeyError(PERSON)))
    assert PERSON in failure.internal, "the log has it"
    told = written(failure)
    assert PERSON not in told
    if failure.failure_class == "bug":
        assert type(error).__qualname__ in told
        assert "test_traces.py" in told, "where it was raised is told"
        assert "KeyError\\n\\nwhich led to:" in told


@pytest.mark.parametrize(
    "error",
    [
        ConnectionRefusedError(111, "db.example:5432 refused"),
        socket.gaierror("db.example is not known"),
        psycopg.OperationalError("connection to db.example failed"),
        confluent_kafka.KafkaException(confluent_kafka.KafkaError(confluent_kafka.KafkaError._TRANSPORT, "db.example")),
        PublishError("db.example", retriable=True),
    ],
    ids=lambda error: type(error).__name__,
)
def test_what_tells_of_systems_is_kept(error: BaseException) -> None:
    assert "db.example" in written(classify(raised(error)))


def test_what_a_handler_says_itself_is_kept() -> None:
    assert "no pages" in written(Poison("no-pages", "no pages"))


def test_the_stack_of_another_process_is_kept_as_it_came() -> None:
    there = traces.stack(raised(ValueError(PERSON)))
    assert there.endswith("ValueError\n")
    assert PERSON not in there
    here = traces.stack(raised(RuntimeError(PERSON), traces.Elsewhere(there)))
    assert here.startswith(there)
    assert PERSON not in here


def test_exceptions_that_lead_to_each_other_have_an_end() -> None:
    first, second = raised(ValueError("a")), raised(KeyError("b"))
    first.__cause__, second.__cause__ = second, first
    assert traces.stack(first).count("Traceback") == 2


def test_an_exception_that_cannot_be_shown_is_told_by_its_class() -> None:
    assert traces.stack(raised(Own())).endswith("test_traces.Own\n")
