"""What a reader's process says: pages or a failure, as JSON. Its reader trusts nothing: a hostile file may speak."""

import json
from collections.abc import Iterable, Sequence
from typing import Any

from offsetzero.consumers.groups.documents.pages import MAX_CHARACTERS, Extracted, Page
from offsetzero.retry.failures import Bug, Failure, FailureClass, Permanent, Poison
from offsetzero.retry.traces import Elsewhere

MAX_OUTPUT = 4 * MAX_CHARACTERS + 16 * 1024 * 1024
"""Bytes of an answer: every character in UTF-8, and room for half a million pages."""
TOO_MUCH_MEMORY = b'{"failure": "memory"}'
"""Said by a reader that ran out of memory: made beforehand, because then there is none to make it."""

_CLASSES: dict[str, type[Failure]] = {
    FailureClass.PERMANENT: Permanent,
    FailureClass.POISON: Poison,
    FailureClass.BUG: Bug,
}
_MAX_DETAIL = 2_000  # characters
_MAX_WARNINGS = 20


class ReaderFault(Elsewhere):
    """An exception in a reader's process; its text is the stack there, without what the document made it say."""


def of_text(found: Extracted) -> bytes:
    """Pages as an answer."""
    pages = [[page.number, page.text, page.reader] for page in found.pages]
    return json.dumps({"pages": pages, "warnings": found.warnings}, ensure_ascii=False, separators=(",", ":")).encode()


def of_failure(failure: Failure, stack: str = "") -> bytes:
    """A failure as an answer, with the stack of a fault of ours."""
    said = {
        "failure": failure.failure_class.value,
        "reason": failure.reason,
        "detail": failure.detail,
        "internal": failure.internal,
        "stack": stack,
    }
    return json.dumps(said).encode()


def read(answer: bytes, too_much_memory: Failure) -> Extracted:
    """The pages of an answer.

    Args:
        answer: complete, at most `MAX_OUTPUT` bytes.
        too_much_memory: raised when the answer says so.

    Raises:
        Failure: the one that the answer tells, or Poison `reader-confused` for an answer that is none.
    """
    try:
        said = json.loads(answer)
        if said.get("failure") == "memory":
            raise too_much_memory
        if "failure" in said:
            raise _failure(said)
        return _checked(said["pages"], said["warnings"])
    except Failure:
        raise
    except (ValueError, TypeError, KeyError, AttributeError, RecursionError) as error:
        raise Poison("reader-confused", f"the reader's answer is none: {type(error).__name__}") from error


def checked(found: Extracted) -> Extracted:
    """What was read in this process, as it would come from another one: fit to be stored."""
    return _checked([(page.number, page.text, page.reader) for page in found.pages], found.warnings)


def _checked(pages: Iterable[tuple[Any, Any, Any]], warnings: Sequence[Any]) -> Extracted:
    return Extracted(
        [Page(_number(number), _text(text), _text(reader)[:100]) for number, text, reader in pages],
        [_text(warning)[:_MAX_DETAIL] for warning in warnings[:_MAX_WARNINGS]],
    )


def _failure(said: dict[str, Any]) -> Failure:
    reason, detail, internal = (_text(said[name])[:_MAX_DETAIL] for name in ("reason", "detail", "internal"))
    failure = _CLASSES[said["failure"]](reason, detail, internal=internal)
    if stack := _text(said["stack"]):
        failure.__cause__ = ReaderFault("\n" + stack)
    return failure


def _text(value: Any) -> str:
    if not isinstance(value, str):
        raise TypeError
    value.encode()  # no lone surrogates: PostgreSQL refuses them
    return value.replace("\0", "")


def _number(value: Any) -> int:
    if not isinstance(value, int) or not 0 < value < 2**31:
        raise TypeError
    return value
