"""A stream of one run's events: what its client has missed, then what comes, until the run is over."""

from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import suppress
from uuid import UUID

import psycopg

from offsetzero.api import event_stream
from offsetzero.api.models import RunAnswer, RunEventAnswer, StepAnswer
from offsetzero.api.run_feeds import RunFeeds
from offsetzero.clock import SYSTEM
from offsetzero.store.run_events import RunEvent, Since

LONGEST_SECONDS = 3600.0
"""After which a stream ends, and its client comes again: by then its key may have been revoked."""
_UNKNOWN = -1


def last_event(header: str | None) -> int | None:
    """The event that a client names as its last; one that no run has for what is no number, None for no name."""
    if not header:
        return None
    return int(header) if header.isascii() and header.isdigit() and len(header) < 10 else _UNKNOWN


async def stream(
    tenant_id: str, run_id: UUID, feeds: RunFeeds, start: Since, look: Callable[[int], Awaitable[Since | None]]
) -> AsyncGenerator[bytes]:
    """What goes on the wire.

    Each event is told once, in the order of numbers, none is left out; whatever is told before a `resync` is replaced
    by it. A client that goes away, or stands, ends this and nothing else.

    Args:
        tenant_id: whose run it is.
        run_id: the run.
        feeds: of this process.
        start: what the client has missed.
        look: asks the database what there is after an event; None when the run is gone.
    """
    until = SYSTEM.monotonic() + LONGEST_SECONDS
    missed: Since | None = start
    told, over = start.last, start.over
    with feeds.watch(tenant_id, run_id, start.last) as feed:
        while True:
            if missed is not None:
                for chunk in _all(missed):
                    yield chunk
                told, over = missed.last, missed.over
            missed, events = None, feed.after(told)
            for event in events or ():
                yield _one(event)
                told, over = event.number, event.is_over(over)
            if (over and feed.after(told) == []) or feeds.is_ending or SYSTEM.monotonic() > until:
                return
            if events is None:
                with suppress(psycopg.OperationalError):  # it is asked again
                    missed = await look(told)
                    if missed is None:
                        return  # the run is gone: nothing more comes of it
            nothing = not events and (missed is None or missed.is_nothing)
            if nothing and not await feed.wait(event_stream.HEARTBEAT_SECONDS):
                yield event_stream.COMMENT


def _all(missed: Since) -> list[bytes]:
    if missed.snapshot is not None:
        now = RunAnswer.model_validate(missed.snapshot)
        return [event_stream.event("resync", missed.last, now.model_dump_json())]
    return [_one(event) for event in missed.events]


def _one(event: RunEvent) -> bytes:
    answer: RunEventAnswer | StepAnswer
    if event.kind == "run":
        answer = RunEventAnswer.model_validate({**event.state, "run_id": event.state["id"]})
    else:
        answer = StepAnswer.model_validate(event.state)
    return event_stream.event(event.kind, event.number, answer.model_dump_json())
