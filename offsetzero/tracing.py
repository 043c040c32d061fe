"""W3C Trace Context: by which a request, its events, and all that is done because of them know each other.

Written after "Trace Context" (W3C Recommendation, 23 November 2021). Every process that has a part in a trace goes on
with a span id of its own; nothing is recorded or exported here (docs/decisions/traces-are-passed-on.md).
"""

import re
import secrets
from dataclasses import dataclass, replace

PARENT, STATE = "traceparent", "tracestate"
_PARENT = re.compile(r"([0-9a-f]{2})-([0-9a-f]{32})-([0-9a-f]{16})-([0-9a-f]{2})(-.*)?")
MAX_STATE = 512
"""Characters of a `tracestate` that is passed on (section 3.3.1.5)."""
_NO_FLAGS = "00"


@dataclass(frozen=True, slots=True)
class Span:
    """One piece of work in a trace.

    Attributes:
        trace_id: 32 hex digits, the same for all that follows from one request.
        span_id: 16 hex digits, of this piece.
        flags: two hex digits; whether anybody records the trace, which is passed on as it came.
        state: what other systems want passed on.
    """

    trace_id: str
    span_id: str
    flags: str = _NO_FLAGS
    state: str | None = None

    @property
    def parent(self) -> str:
        """The header `traceparent` for what comes after it."""
        return f"00-{self.trace_id}-{self.span_id}-{self.flags}"

    def next(self) -> "Span":
        """The piece of work that comes after it."""
        return replace(self, span_id=_id(8))

    def headers(self) -> dict[str, str]:
        """The headers for what comes after it."""
        return {PARENT: self.parent} | ({STATE: self.state} if self.state else {})

    def log_fields(self) -> dict[str, object]:
        """On lines about it."""
        return {"trace_id": self.trace_id, "span_id": self.span_id}


def begin() -> Span:
    """The first piece of work of a trace."""
    return Span(_id(16), _id(8))


def read(parent: str | None, state: str | None = None) -> Span | None:
    """The piece of work that the headers of a request or a record tell of.

    Returns:
        None where there is none, or one that must be ignored (section 3.2.2.3): whoever wants one begins it. A broken
        trace never costs a request or an event.
    """
    if not parent or (found := _PARENT.fullmatch(parent.strip())) is None:
        return None
    version, trace_id, span_id, flags, more = found.groups()
    if version == "ff" or (version == "00" and more) or not trace_id.strip("0") or not span_id.strip("0"):
        return None
    state = state.strip() if state else None
    if state and (len(state) > MAX_STATE or not (state.isascii() and state.isprintable())):
        state = None
    return Span(trace_id, span_id, flags if version == "00" else _NO_FLAGS, state or None)


def _id(size: int) -> str:
    while not (made := secrets.token_hex(size)).strip("0"):
        pass  # all zeros mean none
    return made
