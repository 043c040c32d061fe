"""Rules of a group: what an exception is, said by those who know it."""

from typing import Any

import pytest

from offsetzero import ConsumerGroup, Discard, Permanent, Throttled, Transient
from offsetzero.errors import ConfigurationError
from offsetzero.retry.classify import Rules, classify
from offsetzero.retry.failures import Failure, FailureClass


class SdkError(Exception):
    pass


class QuotaError(SdkError):
    pass


def by_code(error: SdkError) -> Failure | None:
    return Permanent("gone") if error.args == (410,) else None


def broken(error: SdkError) -> Failure:
    raise KeyError("no code")


RULES: Rules = {SdkError: by_code, QuotaError: Throttled, OSError: Transient, LookupError: broken}


@pytest.mark.parametrize(
    ("error", "kind", "reason"),
    [
        (SdkError(410), FailureClass.PERMANENT, "gone"),
        (SdkError(500), FailureClass.BUG, "SdkError"),
        (QuotaError(410), FailureClass.THROTTLED, "QuotaError"),
        (PermissionError("of the share"), FailureClass.TRANSIENT, "PermissionError"),
        (KeyError("x"), FailureClass.BUG, "KeyError"),
        (Discard("not ours"), FailureClass.DISCARDED, "not ours"),
        (ExceptionGroup("two", [QuotaError(), TimeoutError()]), FailureClass.THROTTLED, "QuotaError"),
    ],
    ids=repr,
)
def test_the_rule_of_the_nearest_class_comes_first(error: Exception, kind: FailureClass, reason: str) -> None:
    failure = classify(error, rules=RULES)
    assert (failure.failure_class, failure.reason) == (kind, reason)


def test_what_the_exception_says_is_for_operators() -> None:
    failure = classify(QuotaError("token abc"), rules=RULES)
    assert "abc" not in failure.detail
    assert "token abc" in failure.internal


@pytest.mark.parametrize("rule", [broken, lambda error: "transient", lambda error: SystemExit(), lambda error: 1 / 0])
def test_a_rule_that_fails_is_passed_over(rule: Any) -> None:
    assert classify(TimeoutError(), rules={TimeoutError: rule}).failure_class is FailureClass.TRANSIENT


def test_a_failure_that_a_rule_raises_from_elsewhere_keeps_its_own_cause() -> None:
    given = Permanent("gone")
    error = SdkError()
    failure = classify(error, rules={SdkError: lambda _: given})
    assert failure is given
    assert failure.__cause__ is error


@pytest.mark.parametrize(
    ("rules", "said"),
    [
        ([], "must be a mapping"),
        ({"SdkError": Transient}, "'SdkError' is no class of exceptions"),
        ({Transient: Permanent}, "Transient is of the taxonomy"),
        ({SdkError: Failure}, "Failure is no class of the taxonomy"),
        ({SdkError: int}, "int is no class of the taxonomy"),
        ({SdkError: "transient"}, "'transient' for SdkError is neither a class nor a function"),
        ({SdkError: lambda: None}, r"rule for SdkError .* takes \(\)"),
    ],
)
def test_rules_that_cannot_work_are_refused_where_they_are_declared(rules: Any, said: str) -> None:
    with pytest.raises(ConfigurationError, match=f"group audit: .*{said}"):
        ConsumerGroup("audit", rules=rules)
