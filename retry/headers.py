"""The `oz_` headers of retry, redrive and dead-letter records: replaced at every append, never added to.

All headers of such a record together have at most 8 KiB, however often it was retried and redriven: what is told of
the failure is cut to what is left. The event's own headers are never cut, for they are part of the event: where they
alone have more than that, they are kept, and of ours only what the next reader must know (`MAX_REQUIRED`).
"""

import hashlib
import re
import traceback
import uuid
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TypeAlias

from offsetzero import tracing
from offsetzero.errors import DecodeError
from offsetzero.retry import traces
from offsetzero.retry.failures import Failure, FailureClass, Trace
from offsetzero.tracing import Span

Headers: TypeAlias = list[tuple[str, bytes | None]]
PREFIX = "oz_"
MAX_BYTES = 8 * 1024
"""Names and values of all headers together, those of the event among them."""
MAX_REQUIRED = 1536
"""Names and values of those of ours that are never left out."""
_DETAIL_BYTES = 1024
_STACK_BYTES = 4096
_MAX_ATTEMPT = 1000
MAX_WAIT_MS = 31 * 24 * 60 * 60 * 1000
"""Milliseconds after its append that a copy may be due: settings allow 30 days, and jitter."""


@dataclass(frozen=True, slots=True)
class Origin:
    """Where a record was first read: the topic's id (it changes when a topic is recreated), its name, the place."""

    topic_id: str
    topic: str
    partition: int
    offset: int

    def __str__(self) -> str:
        return f"{self.topic_id}/{self.partition}/{self.offset}"


@dataclass(frozen=True, slots=True)
class Hop:
    """What a record carries through retries.

    `attempt` is the one that is due, from 1; `hop` counts appends; `due_ms` is wall time in milliseconds, 0 for
    a record of a source topic; `timestamp_ms` is the source record's own timestamp. `redrive` is the id of the
    operator's action that opened the record again, empty for none; with `discard` it is to be ended unhandled. Before
    `until_ms`, where it is more than 0, the record waits once more.
    """

    origin: Origin
    attempt: int = 1
    hop: int = 0
    due_ms: int = 0
    redrive_no: int = 0
    timestamp_ms: int = 0
    redrive: str = ""
    discard: bool = False
    until_ms: int = 0


def redriven(letter: Hop, action: uuid.UUID, *, discard: bool = False) -> Hop:
    """What a dead letter carries back to its group: the first attempt again, at once, under a higher `redrive_no`.

    Args:
        letter: what the dead letter carries.
        action: the id of the operator's action.
        discard: the record is to be ended without its handler, such as one that holds up its key.
    """
    again = letter.redrive_no + 1
    fresh = Hop(letter.origin, hop=letter.hop + 1, redrive_no=again, timestamp_ms=letter.timestamp_ms)
    return replace(fresh, redrive=str(action), discard=discard)


def read(headers: Sequence[tuple[str, bytes | None]], here: Origin, timestamp_ms: int) -> Hop:
    """What the headers of a record say, `here` and first attempt where they say nothing.

    Raises:
        DecodeError: an `oz_` header is there and cannot be read.
    """
    ours = {name: value for name, value in headers if name.startswith(PREFIX) and value is not None}
    if "oz_attempt" not in ours:
        return Hop(here, timestamp_ms=timestamp_ms)
    try:
        topic_id, partition, offset = ours["oz_origin"].decode().rsplit("/", 2)
        hop = Hop(
            origin=Origin(topic_id, ours["oz_topic"].decode(), _number(partition), _number(offset)),
            attempt=_number(ours["oz_attempt"]),
            hop=_number(ours["oz_hop"]),
            due_ms=_number(ours["oz_due"]),
            redrive_no=_number(ours.get("oz_redrive_no", b"0")),
            timestamp_ms=_number(ours["oz_timestamp"]),
            redrive=str(uuid.UUID(ours["oz_redrive"].decode())) if "oz_redrive" in ours else "",
            discard=ours.get("oz_discard") == b"1",
            until_ms=_number(ours.get("oz_until", b"0")),
        )
        if not (1 <= hop.attempt <= _MAX_ATTEMPT and hop.redrive_no < 2**31):
            raise ValueError("a number out of its range")
        if hop.origin.partition != here.partition:
            raise ValueError(f"its origin is partition {hop.origin.partition}: copies keep the partition number")
        if max(hop.due_ms, hop.until_ms) > timestamp_ms + MAX_WAIT_MS:
            raise ValueError("due later than any tier makes it")
    except (KeyError, ValueError) as error:
        raise DecodeError(f"{here.topic}/{here.partition}@{here.offset}: oz_ header cannot be read: {error}") from error
    return hop


def _number(text: str | bytes) -> int:
    digits = text.decode() if isinstance(text, bytes) else text
    if not (digits.isascii() and digits.isdecimal() and len(digits) <= 18):
        raise ValueError(f"not a number: {digits[:40]!r}")
    return int(digits)


def write(
    headers: Sequence[tuple[str, bytes | None]],
    hop: Hop,
    failure: Failure | None,
    group: str,
    span: Span | None = None,
) -> Headers:
    """The headers of the next append: those that came, with ours replaced.

    Args:
        headers: the record's headers as they came.
        hop: what the next reader must know.
        failure: why the record moves; None when nothing has failed.
        group: the group that moves it.
        span: the handling that has failed; by default another one of the trace that the record is of.
    """
    kept = _traced([(name, value) for name, value in headers if not name.startswith(PREFIX)], span)
    ours: dict[str, str | int] = {
        "oz_group": group,
        "oz_origin": str(hop.origin),
        "oz_topic": hop.origin.topic,
        "oz_timestamp": hop.timestamp_ms,
        "oz_attempt": hop.attempt,
        "oz_hop": hop.hop,
        "oz_due": hop.due_ms,
        "oz_redrive_no": hop.redrive_no,
    }
    if hop.redrive:
        ours["oz_redrive"] = hop.redrive
    if hop.discard:
        ours["oz_discard"] = 1
    if hop.until_ms:
        ours["oz_until"] = hop.until_ms
    if failure is None:
        return kept + _encoded(ours)
    trace = failure.trace or trace_of(failure)
    ours |= {
        "oz_failure": failure.failure_class.value,
        "oz_reason": failure.reason,
        "oz_fingerprint": trace.fingerprint,
    }
    room = MAX_BYTES - size_of(kept) - size_of(_encoded(ours))
    if detail := _cut(traces.text(failure), min(_DETAIL_BYTES, room - len("oz_detail"))):
        ours["oz_detail"] = detail
        room -= size_of(_encoded({"oz_detail": detail}))
    if stack := _cut(trace.stack, min(_STACK_BYTES, room - len("oz_stack")), tail=True):
        ours["oz_stack"] = stack
    return kept + _encoded(ours)


def _traced(headers: Headers, span: Span | None) -> Headers:
    """The same headers, of the next hop; no longer than they were, and those of no trace, or of a broken one, as they
    were."""
    for place, (name, value) in enumerate(headers):
        if name == tracing.PARENT and value is not None:
            came = tracing.read(value.decode(errors="replace"))
            if came is not None:
                headers[place] = (name, (span or came.next()).parent.encode())
    return headers


def failed_as(headers: Sequence[tuple[str, bytes | None]]) -> str:
    """The class of the failure that a record was appended for, empty for none."""
    return next((value.decode(errors="replace") for name, value in headers if name == "oz_failure" and value), "")


def size_of(headers: Sequence[tuple[str, bytes | None]]) -> int:
    """Bytes of names and values."""
    return sum(len(name.encode()) + len(value or b"") for name, value in headers)


def _encoded(ours: Mapping[str, str | int]) -> Headers:
    return [(name, str(value).encode(errors="backslashreplace")) for name, value in ours.items()]


def trace_of(failure: Failure) -> Trace:
    """What dead letters show of a failure's traceback; the stack is that of a bug, and empty for all others."""
    stack = ""
    if failure.failure_class is FailureClass.BUG and failure.__cause__ is not None:
        stack = _cut(traces.stack(failure.__cause__), _STACK_BYTES, tail=True)
    return Trace(fingerprint(failure), stack)


def let_go(failure: Failure) -> None:
    """Keep of a failure's tracebacks what is written of them: their frames hold all that was in work then."""
    failure.trace = failure.trace or trace_of(failure)
    errors: list[BaseException | None] = [failure]
    seen: set[int] = set()
    while errors:
        error = errors.pop()
        if error is None or id(error) in seen:
            continue
        seen.add(id(error))
        error.__traceback__ = None
        errors += [error.__cause__, error.__context__, *getattr(error, "exceptions", ())]


def fingerprint(failure: Failure) -> str:
    """16 hex digits that are the same for failures of one cause: class, reason, and the stack without its numbers."""
    parts = [failure.failure_class.value, failure.reason]
    if failure.__cause__ is not None:
        parts += [
            f"{frame.filename.rpartition('/')[2]}:{frame.name}"
            for frame in traceback.extract_tb(failure.__cause__.__traceback__)
        ]
    return hashlib.sha256(re.sub(r"\d+", "0", "|".join(parts)).encode()).hexdigest()[:16]


def _cut(text: str, limit: int, *, tail: bool = False) -> str:
    data = text.encode(errors="backslashreplace")
    if len(data) <= limit:
        return text
    if limit <= 0:
        return ""
    kept = data[-limit:] if tail else data[:limit]
    return kept.decode(errors="ignore")
